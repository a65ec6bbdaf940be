#!/bin/sh
# in_root.sh ROOT SHARED COMMAND...: runs COMMAND in another Debian root; the folder SHARED appears there as /x.
# The mount namespace is private: every mount, also those that the command makes, goes away with its last process.
# pivot_root instead of a bare chroot, so that the container runtime can pivot in turn. The command replaces this shell.
set -eu
root=$1 shared=$2
shift 2
# shellcheck disable=SC2016  # expanded by the inner shells
exec unshare --mount --propagation private sh -euc '
root=$1 shared=$2
shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/x" "$root/.old"
mount --bind "$shared" "$root/x"
cd "$root"
pivot_root . .old
exec chroot . sh -euc "umount -l /.old; cd /; exec \"\$@\"" sh "$@"
' sh "$root" "$shared" "$@"
