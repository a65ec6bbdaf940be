"""Real file systems to copy to: small, full, read-only, exFAT, and ones that are pulled out or lie."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from doubles.engines import missing, require

MIB = 1024 * 1024


@dataclass
class Stick:
    """A medium that can be pulled out, and whose bytes can be changed behind its back.

    Attributes:
        folder: Where it is mounted.
        device_file: The file that plays the device.
        process_id: Of the file system's process, if it is one in user space.
    """

    folder: Path
    device_file: Path
    process_id: int | None = None

    def pull_out(self) -> None:
        """What is in flight is lost and the mount answers nothing any more."""
        assert self.process_id is not None
        os.kill(self.process_id, signal.SIGKILL)

    def spoil(self, content: bytes, replacement: bytes) -> None:
        """Change bytes on the device; the file system above does not learn of it."""
        assert len(content) == len(replacement)
        with self.device_file.open("r+b") as device:
            offset = device.read().find(content)
            assert offset >= 0, "these bytes have not reached the device"
            device.seek(offset)
            device.write(replacement)
            device.flush()
            os.fsync(device.fileno())


@contextlib.contextmanager
def tmpfs(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system in memory of this size."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _unmount(folder)


@contextlib.contextmanager
def read_only(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A read-only view of a file system in memory."""
    with tmpfs(folder, size_bytes):
        _mount("-o", "remount,ro", str(folder))
        yield folder


@contextlib.contextmanager
def ext4_stick(folder: Path, size_bytes: int = 64 * MIB) -> Iterator[Stick]:
    """An ext4 file system on a loop device."""
    mkfs = require("mkfs.ext4")
    device_file = _blank(folder, size_bytes)
    subprocess.run([mkfs, "-q", "-F", device_file], check=True)
    with _loop_device(device_file) as device:
        _mount("-t", "ext4", device, str(folder))
        try:
            yield Stick(folder, device_file)
        finally:
            _unmount(folder)


@contextlib.contextmanager
def exfat_stick(folder: Path, size_bytes: int = 64 * MIB) -> Iterator[Stick]:
    """An exFAT file system (exfat-fuse) on a loop device."""
    mkfs = require("mkfs.exfat")
    require("mount.exfat-fuse")
    if not Path("/dev/fuse").exists():
        missing("there is no /dev/fuse")
    device_file = _blank(folder, size_bytes)
    subprocess.run([mkfs, device_file], check=True, capture_output=True)
    with _loop_device(device_file) as device, exfat_mounted(folder, device, device_file) as stick:
        yield stick


@contextlib.contextmanager
def exfat_mounted(folder: Path, device: str, device_file: Path) -> Iterator[Stick]:
    """Mount an exFAT device that has been made before."""
    # In the foreground (-d), so that its process is ours to kill.
    process = subprocess.Popen(
        [require("mount.exfat-fuse"), "-d", device, folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 20
    while not os.path.ismount(folder):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            missing(f"exFAT cannot be mounted here (exit code {process.wait()})")
        time.sleep(0.02)
    try:
        yield Stick(folder, device_file, process.pid)
    finally:
        _unmount(folder)
        process.wait()


@contextlib.contextmanager
def plugged_in_again(stick: Stick) -> Iterator[Stick]:
    """After `pull_out`: the same exFAT medium mounted once more, at another folder."""
    folder = stick.folder.with_name(stick.folder.name + "-again")
    folder.mkdir()
    with _loop_device(stick.device_file) as device, exfat_mounted(folder, device, stick.device_file) as again:
        yield again


def _blank(folder: Path, size_bytes: int) -> Path:
    folder.mkdir()
    device_file = folder.with_name(folder.name + ".device")
    with device_file.open("wb") as file:
        file.truncate(size_bytes)
    return device_file


@contextlib.contextmanager
def _loop_device(device_file: Path) -> Iterator[str]:
    losetup = require("losetup")
    done = subprocess.run([losetup, "--find", "--show", device_file], capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"no loop device can be had: {done.stderr.strip()}")
    device = done.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run([losetup, "--detach", device], check=False)


def _mount(*arguments: str) -> None:
    done = subprocess.run([require("mount"), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"mounting needs root: {done.stderr.strip()}")


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", folder], check=False, capture_output=True)
