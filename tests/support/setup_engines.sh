#!/bin/sh
# setup_engines.sh DIRECTORY: a Debian trixie root with Docker 26.1 in DIRECTORY, for the tests that need a daemon with
# the containerd image store. About a minute and 700 MB; needs root and debootstrap. Made beside and renamed, so that an
# interrupted run never leaves half a root behind.
set -eu
target=${1:?usage: setup_engines.sh DIRECTORY}
[ ! -x "$target/usr/sbin/dockerd" ] || exit 0
mkdir -p "$(dirname "$target")"
work=$target.unfinished
rm -rf "$work"
debootstrap --variant=minbase --include=ca-certificates trixie "$work"
# Services must not start in there.
printf '#!/bin/sh\nexit 101\n' > "$work/usr/sbin/policy-rc.d"
chmod 755 "$work/usr/sbin/policy-rc.d"
DEBIAN_FRONTEND=noninteractive chroot "$work" apt-get install -y -q --no-install-recommends docker.io
rm -rf "$work/var/cache/apt/archives" "$work/var/lib/apt/lists"
chroot "$work" dockerd --version
rm -rf "$target"
mv "$work" "$target"
