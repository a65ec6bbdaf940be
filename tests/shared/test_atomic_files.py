from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from transload.shared.atomic_files import (
    FaultPoints,
    read_bounded,
    rename,
    reporting_write_errors,
    sync_directory,
    write_atomically,
    write_error,
    write_new,
)
from transload.shared.errors import (
    AlreadyExists,
    FileTooLarge,
    NotEnoughSpace,
    PathMissing,
    ReadFailed,
    TransloadError,
    WriteFailed,
)


@pytest.fixture
def fault_points() -> Iterator[type[FaultPoints]]:
    yield FaultPoints
    FaultPoints.reached = None


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


# --- writing ---


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_file_is_replaced_as_a_whole_with_its_mode(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "file"
    before = os.umask(mask)
    try:
        write_atomically(path, b"one")
        write_atomically(path, b"two", mode=0o600)
    finally:
        os.umask(before)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names_in(tmp_path) == {"file"}


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a device"])
def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "thing"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/null")
    before = path.lstat()
    with pytest.raises(AlreadyExists, match="no regular file"):
        write_atomically(path, b"new")
    assert path.lstat() == before
    assert names_in(tmp_path) == {"thing"}


def test_the_previous_copy_follows(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"one", b"two", b"three"):
        write_atomically(path, content, keep_previous=True)
    assert (tmp_path / "file.previous").read_bytes() == b"two"
    assert names_in(tmp_path) == {"file", "file.previous"}


def test_the_previous_copy_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EPERM, "no hard links on FAT")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "file"
    for content in (b"one", b"two"):
        write_atomically(path, content, keep_previous=True, mode=0o640)
    assert (tmp_path / "file.previous").read_bytes() == b"one"
    assert (tmp_path / "file.previous").stat().st_mode & 0o777 == 0o640


class Crash(BaseException):
    pass


@pytest.mark.parametrize("keep_previous", [False, True])
def test_a_crash_at_each_durable_step_leaves_old_or_new(
    tmp_path: Path, fault_points: type[FaultPoints], keep_previous: bool
) -> None:
    path = tmp_path / "file"
    seen: list[str] = []
    fault_points.reached = seen.append
    write_atomically(path, b"old")
    assert seen == [f"fsync .file.{os.getpid()}.tmp", "rename file", "sync directory of file"]
    for step in seen:

        def reached(name: str, step: str = step) -> None:
            if name == step:
                raise Crash

        fault_points.reached = reached
        with pytest.raises(Crash):
            write_atomically(path, b"new", keep_previous=keep_previous)
        fault_points.reached = None
        assert path.read_bytes() == (b"new" if step.startswith("sync") else b"old")
        assert not [name for name in names_in(tmp_path) if name.endswith(".tmp")]
        write_atomically(path, b"old")


def test_data_is_synced_before_the_name_and_the_name_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def watched_fsync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        calls.append("sync directory" if target.is_dir() else "sync data")
        fsync(descriptor)

    def watched_replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    write_atomically(tmp_path / "file", b"x")
    assert calls == ["sync data", "rename", "sync directory"]


def test_a_symbolic_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / f".file.{os.getpid()}.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(WriteFailed):
        write_atomically(tmp_path / "file", b"x")
    assert not (tmp_path / "victim").exists()


def test_a_file_size_limit_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    script = f"""
import resource, signal
from pathlib import Path
from transload.shared.atomic_files import write_atomically
from transload.shared.errors import FileTooLarge
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomically(Path({str(tmp_path / "file")!r}), b"x" * 5000)
except FileTooLarge as error:
    print(error.exit_code)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "44\n"
    assert names_in(tmp_path) == set()


def test_a_full_device_is_named() -> None:
    with pytest.raises(NotEnoughSpace) as caught:
        write_new(Path("/dev/full"), b"x")
    assert caught.value.facts["errno"] == "ENOSPC"


def test_missing_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(PathMissing, match="folder does not exist"):
        write_atomically(tmp_path / "no" / "file", b"x")
    with pytest.raises(PathMissing):
        rename(tmp_path / "none", tmp_path / "other")
    with pytest.raises(PathMissing):
        sync_directory(tmp_path / "none")


def test_a_rename_onto_a_full_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "content").touch()
    with pytest.raises(AlreadyExists):
        rename(tmp_path / "new", tmp_path / "old")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, NotEnoughSpace),
        (errno.EDQUOT, NotEnoughSpace),
        (errno.EFBIG, FileTooLarge),
        (errno.EEXIST, AlreadyExists),
        (errno.ENOTEMPTY, AlreadyExists),
        (errno.ENOENT, PathMissing),
        (errno.ENOTDIR, PathMissing),
        (errno.EROFS, WriteFailed),
        (errno.EACCES, WriteFailed),
        (errno.EIO, WriteFailed),
        (errno.ENOTCONN, WriteFailed),
    ],
)
def test_each_word_of_the_operating_system_has_its_error(number: int, kind: type[TransloadError]) -> None:
    error = write_error(Path("/medium/file"), OSError(number, os.strerror(number)))
    assert type(error) is kind
    assert "/medium/file" in error.message
    assert error.facts == {"path": "/medium/file", "errno": errno.errorcode[number]}


def test_a_read_only_file_system_is_called_that() -> None:
    with pytest.raises(WriteFailed, match="read-only"), reporting_write_errors(Path("/x")):
        raise OSError(errno.EROFS, "Read-only file system")


# --- reading ---


def test_reading_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert read_bounded(path, 10) == b"x" * 10
    with pytest.raises(ReadFailed, match="larger than the 9 bytes"):
        read_bounded(path, 9)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_bounded(link, 10) == b"x" * 10


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ReadFailed, match="not a regular file"):
            read_bounded(path, 10)


def test_what_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(PathMissing):
        read_bounded(tmp_path / "none", 10)
    (tmp_path / "file").touch()
    with pytest.raises(ReadFailed, match="cannot be opened"):
        read_bounded(tmp_path / "file" / "below", 10)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    before = len(os.listdir("/proc/self/fd"))
    for path, most in ((tmp_path / "file", 10), (tmp_path / "file", 100), (tmp_path, 10), (Path("/dev/zero"), 10)):
        with contextlib.suppress(ReadFailed):
            read_bounded(path, most)
    assert len(os.listdir("/proc/self/fd")) == before
