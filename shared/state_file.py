"""state.yml: one typed, versioned file that a run owns while it goes on and that a person may edit between runs.

What it holds is the memory of a side, so it is never guessed: a file that cannot be understood stops the run, and
only a file that does not exist (nor its previous copy) means a fresh start. While a run goes on it holds an flock
on `<name>.lock`, which the kernel drops with the process. A file always ends with the YAML document end `...`, so a
truncated one is noticed even where the cut leaves valid YAML.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import msgspec

from transload.shared import limits
from transload.shared.atomic_files import read_bounded, reporting_write_errors, write_atomically
from transload.shared.console import warn
from transload.shared.errors import Locked, PathMissing, ReadFailed, StateConflict, StateUnreadable, TransloadError
from transload.shared.yaml_files import dump_yaml, load_yaml

FILE_NAME = "state.yml"
SAVE_INTERVAL_SECONDS = 1.0
"""At most one unforced save in this time; the journal is the fine record."""

_HEADER = b"# transload's memory. It may be edited between runs; comments are not kept.\n"
_END = b"..."


class State(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of the two sides' states.

    Attributes:
        SCHEMA: The version of the shape that the class describes.
        SIDE: `export` or `import`.
        schema: The version in the file.
        side: The side in the file.
    """

    SCHEMA: ClassVar[int]
    SIDE: ClassVar[str]

    schema: int
    side: str


S = TypeVar("S", bound=State)
Upgrade = Callable[[bytes, Path], S | None]
"""Makes a state of a foreign file's content; None for content that is not foreign. May keep the file elsewhere."""


class StateFile(Generic[S]):
    """An open state file. Used from the main thread only.

    Attributes:
        path: The file.
        state: Its content; change it and call `save`.
    """

    def __init__(self, path: Path, state: S, on_disk: bytes | None, clock: Callable[[], float]) -> None:
        self.path = path
        self.state = state
        self._on_disk = on_disk
        self._saved_content = None if on_disk is None else encode_state(state)
        self._clock = clock
        self._last_save: float | None = None
        self._save_is_due = self._is_in_conflict = False

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        path: Path,
        kind: type[S],
        fresh: Callable[[], S],
        *,
        upgrade: Upgrade[S] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Iterator[StateFile[S]]:
        """Lock, read, and at the end write what was still to be saved.

        Args:
            path: The file; its folder is made if it is missing.
            kind: The struct that it must be.
            fresh: Makes the first state where there is no file. Nothing is written before `save`.
            upgrade: Understands the files of a program that went before; what it makes of one is written at once.
            clock: For tests.

        Raises:
            Locked: Another run holds it.
            StateUnreadable: It is there and cannot be understood, or only its previous copy is there.
            StateConflict: A save found that somebody had edited the file meanwhile.
            WriteFailed, NotEnoughSpace: The folder or the lock cannot be made, or a save failed.
        """
        with reporting_write_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            _remove_leftovers(path)
            raw = _read(path)
            upgraded = upgrade(raw, path) if upgrade is not None and raw is not None else None
            state = fresh() if raw is None else upgraded or decode_state(raw, kind, path)
            file = cls(path, state, raw, clock)
            if upgraded is not None:
                file._saved_content = None
                file.save(force=True)
            try:
                yield file
            except BaseException:
                # What stopped the run is what a person must hear; a failing last save must not hide it.
                try:
                    file._save_what_is_due()
                except TransloadError as error:
                    warn(error.message)
                raise
            file._save_what_is_due()

    def save(self, *, force: bool = False) -> None:
        """Write the state if it has changed, at most once a second.

        Args:
            force: Write now. Without it a change too soon after the last save is written by a later save or when
                the file is closed.

        Raises:
            StateConflict: The file is not as this run left it; the run's state was written beside it.
            WriteFailed, NotEnoughSpace: The old file is still there.
        """
        now = self._clock()
        if not force and self._last_save is not None and now - self._last_save < SAVE_INTERVAL_SECONDS:
            self._save_is_due = True
            return
        self._save_is_due = False
        content = encode_state(self.state)
        if content == self._saved_content:
            return
        if self._is_in_conflict or _bytes_on_disk(self.path) != self._on_disk:
            self._is_in_conflict = True
            raise self._conflict(content)
        write_atomically(self.path, content, keep_previous=True)
        self._on_disk = self._saved_content = content
        self._last_save = now

    def _save_what_is_due(self) -> None:
        if self._save_is_due and not self._is_in_conflict:
            self.save(force=True)

    def _conflict(self, content: bytes) -> StateConflict:
        moment = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        beside = self.path.with_name(f"{self.path.name}.conflict-{moment}")
        write_atomically(beside, content)
        return StateConflict(
            f"{self.path} was changed by somebody else during this run, and was not overwritten. "
            f"What this run knows is in {beside}.",
            hint=f"Compare the two, bring what is right into {self.path.name}, and run the same command again.",
            path=str(self.path),
            written_beside=str(beside),
        )


def read_state(path: Path, kind: type[S]) -> S | None:
    """Read a state without locking it; a save replaces the file as a whole, so what is read is never half.

    Returns:
        The state, or None if there is no such file.

    Raises:
        StateUnreadable: It is there and cannot be understood, or only its previous copy is there.
        ReadFailed: The operating system does not let it be read.
    """
    raw = _read(path)
    return None if raw is None else decode_state(raw, kind, path)


def read_side(path: Path) -> str | None:
    """Which side's state a file is: its field `side`, or None if there is no such file.

    Raises:
        StateUnreadable: It is there and cannot be understood.
    """
    raw = _read(path)
    return None if raw is None else str(_load(raw, path).get("side", ""))


def encode_state(state: State) -> bytes:
    """The bytes of a state file: struct fields in their order, mapping keys sorted, so that equal is equal."""
    return _HEADER + dump_yaml(msgspec.to_builtins(state, order="deterministic")) + _END + b"\n"


def decode_state(raw: bytes, kind: type[S], path: Path) -> S:
    """Understand the bytes of a state file.

    Raises:
        StateUnreadable: Truncated, not YAML, of a later version, of the other side, or of a wrong shape.
    """
    document = _load(raw, path)
    side, schema = document.get("side"), document.get("schema")
    if side != kind.SIDE:
        raise _unreadable(path, f"it is the state of side {side!r}, not of the {kind.SIDE} side", is_damaged=False)
    if isinstance(schema, str) and schema.isdecimal() and int(schema) > kind.SCHEMA:
        raise _unreadable(
            path,
            f"it has schema {schema}, written by a later transload; this one knows up to {kind.SCHEMA}",
            is_damaged=False,
        )
    try:
        state = msgspec.convert(document, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _unreadable(path, str(error)) from error
    if state.schema != kind.SCHEMA:
        raise _unreadable(path, f"it has schema {state.schema}; {kind.SCHEMA} is expected")
    return state


def default_state_path() -> Path:
    """Where an importer keeps its state: /var/lib/transload for root, else the XDG state folder."""
    if os.geteuid() == 0:
        return Path("/var/lib/transload") / FILE_NAME
    base = os.environ.get("XDG_STATE_HOME", "")
    # XDG base directory specification: a relative path is to be ignored.
    folder = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return folder / "transload" / FILE_NAME


def _read(path: Path) -> bytes | None:
    previous = _previous(path)
    try:
        return read_bounded(path, limits.MAX_STATE_BYTES)
    except PathMissing as error:
        if not previous.exists():
            return None
        raise StateUnreadable(
            f"{path} does not exist, but its previous copy {previous.name} does.",
            hint=f"If the file was lost, copy {previous} to {path.name}; to really start from nothing, "
            f"move {previous.name} away.",
            path=str(path),
        ) from error
    except ReadFailed as error:
        if isinstance(error.__cause__, OSError):
            raise  # nothing is wrong with what is in it: this user may not read it, or the disk cannot
        raise _unreadable(path, error.message) from error


def _bytes_on_disk(path: Path) -> bytes | None:
    try:
        return read_bounded(path, limits.MAX_STATE_BYTES)
    except PathMissing:
        return None


def _load(raw: bytes, path: Path) -> dict[str, object]:
    lines = [line for line in raw.splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    if not lines or lines[-1].rstrip() != _END:
        what = "it is empty" if not lines else "its last line is not `...`, so its end is missing"
        raise _unreadable(path, what)
    try:
        document = load_yaml(raw, path.name, raising=StateUnreadable)
    except StateUnreadable as error:
        raise _unreadable(path, error.message) from error
    if not isinstance(document, dict):
        raise _unreadable(path, "it is not a mapping")
    return document


def _unreadable(path: Path, what: str, *, is_damaged: bool = True) -> StateUnreadable:
    hint = "Use the transload and the file that belong together."
    if is_damaged:
        previous = _previous(path)
        copy = f"or replace it by its previous copy {previous}" if previous.exists() else "or restore it from a backup"
        hint = (
            f"Correct the file, {copy}. It is never taken for an empty one, because images would be lost or repeated."
        )
    return StateUnreadable(f"{path} cannot be understood: {what.rstrip('.')}.", hint=hint, path=str(path))


def _previous(path: Path) -> Path:
    return path.with_name(f"{path.name}.previous")


def _remove_leftovers(path: Path) -> None:
    """Remove what saves of killed runs left; the lock is held, so nobody is writing."""
    for leftover in path.parent.glob(f".{path.name}.*tmp"):
        with contextlib.suppress(OSError):
            leftover.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = path.with_name(f"{path.name}.lock")
    with reporting_write_errors(lock):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 100, 0).decode("ascii", "replace").strip()
            raise Locked(
                f"Another transload run{f' (process {holder})' if holder else ''} holds {path}.",
                hint="Wait until it ends, or stop it; the lock ends with the process.",
                path=str(path),
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL):
                raise Locked(f"{lock} cannot be locked: {error.strerror}.", path=str(path)) from error
            warn(f"the file system of {path} has no locks ({error.strerror}); do not start a second run beside this.")
        with contextlib.suppress(OSError):  # the number only serves the other run's message
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)
