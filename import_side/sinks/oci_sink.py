"""Delivers images into one OCI image layout that they share: `--to oci=DIR`.

`skopeo copy oci:DIR:registry.example/team/app:1.0 ...` reads them: each is named by its full reference, and images of
Docker's media types have a door (`archive_layout.oci_door`). Blobs come first, each under its name only when it is
complete; the index comes last and is replaced as a whole (OCI image-spec, image-layout.md). What somebody else put
into the layout stays there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from transload.import_side.sinks.folders import FolderLock, make_folder, require_space
from transload.manifests.archive_layout import blob_path, oci_door
from transload.shared import limits
from transload.shared.atomic_files import read_bounded, rename, reporting_write_errors, write_atomically
from transload.shared.digests import Digest
from transload.shared.errors import PathMissing, TagConflict, TargetCannotHold
from transload.shared.image import OCI_INDEX, Descriptor
from transload.shared.progress import Progress, Stage
from transload.shared.references import Reference
from transload.shared.sinks.base import BlobSource, Delivery, ExistingTagPolicy, Wanted
from transload.shared.texts import path_text, real_path
from transload.shared.workers import Outcome, Stop, attempt

REFERENCE_NAME = "org.opencontainers.image.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"
_LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'


class OciSink:
    """One OCI image layout.

    Args:
        folder: Made if it is missing; an existing one must be empty or a layout.
        policy: For a name that the layout has for another image.
    """

    def __init__(self, folder: Path, policy: ExistingTagPolicy = "overwrite") -> None:
        self.folder = folder
        self.policy = policy
        self._lock = FolderLock(folder)
        self._intact: set[Digest] = set()

    @property
    def identity(self) -> str:
        """`oci=DIR`, absolute."""
        return f"oci={path_text(real_path(self.folder))}"

    def check(self, wanted: Sequence[Wanted]) -> None:
        """Make or open the layout, lock it against other runs, and compare what is to be written with the space.

        Raises:
            TargetCannotHold: The folder holds something that is no OCI layout, or one of another version.
            Locked: Another run writes there.
            NotEnoughSpace: The facts have needed and available bytes.
            WriteFailed, PathMissing: The folder cannot be made or written.
        """
        make_folder(self.folder)
        self._lock.take()
        for leftover in self.folder.glob(".partial-*"):  # of a run that was killed
            with contextlib.suppress(OSError):
                leftover.unlink()
        self._require_layout()
        self._read_index()
        missing = {
            descriptor.digest: descriptor.size_bytes
            for one in wanted
            for descriptor in one.image.descriptors()
            if not self._has_size(descriptor)
        }
        require_space(self.folder, sum(missing.values()))

    def deliver(
        self, wanted: Sequence[Wanted], blobs: BlobSource, *, stop: Stop, progress: Progress
    ) -> Iterator[Outcome[Wanted, Delivery]]:
        """Write one image's blobs and name it, then the next; see `Sink.deliver`."""
        total = sum(descriptor.size_bytes for one in wanted for descriptor in one.image.descriptors())
        is_there = all(self._has_size(descriptor) for one in wanted for descriptor in one.image.descriptors())
        with progress.stage(f"{'Comparing' if is_there else 'Writing to'} {self.folder}", total) as stage:
            for one in wanted:
                yield attempt(one, lambda one: self._deliver_one(one, blobs, stop, stage))

    def close(self) -> None:
        """Let other runs write there."""
        self._lock.release()

    def _deliver_one(self, one: Wanted, blobs: BlobSource, stop: Stop, stage: Stage) -> Delivery:
        previous = self._named(one)
        if previous is not None and previous != str(one.image.digest):
            if self.policy == "keep":
                note = f"{one.target} names {previous} in {self.folder} and was kept."
                return Delivery(one, "kept", one.image.digest, previous, notes=(note,))
            if self.policy == "fail":
                raise TagConflict(
                    f"{one.target} names {previous} in {self.folder}, not {one.image.digest}.",
                    hint="Allow it with --on-existing-tag overwrite.",
                    target=one.target,
                    found=previous,
                    expected=str(one.image.digest),
                )
        bytes_sent = 0
        for descriptor in one.image.descriptors():
            if not self._is_intact(descriptor, stop):
                self._write_blob(descriptor, blobs, stop)
                bytes_sent += descriptor.size_bytes
            stage.advance(descriptor.size_bytes)
        door = self._door(one)
        if previous == str(one.image.digest) and not bytes_sent and (door is None or self._is_intact(door[0], stop)):
            return Delivery(one, "already-there", one.image.digest)
        if door is not None:
            path = self.folder / blob_path(door[0].digest)
            with reporting_write_errors(path):
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomically(path, door[1])
        self._name(one, None if door is None else door[0])
        moved = previous if previous != str(one.image.digest) else None
        return Delivery(one, "delivered", one.image.digest, moved, bytes_sent)

    def _write_blob(self, descriptor: Descriptor, blobs: BlobSource, stop: Stop) -> None:
        path = self.folder / blob_path(descriptor.digest)
        temporary = self.folder / f".partial-{descriptor.digest.hex}"
        try:
            with reporting_write_errors(path):
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.open(temporary, flags, 0o600)
                try:
                    os.fchmod(file, 0o644)
                    for piece in blobs.open_blob(descriptor):
                        stop.check()
                        view = piece
                        while view:
                            view = view[os.write(file, view) :]
                    os.fsync(file)
                finally:
                    os.close(file)
                rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._intact.add(descriptor.digest)

    def _has_size(self, descriptor: Descriptor) -> bool:
        path = self.folder / blob_path(descriptor.digest)
        return path.is_file() and not path.is_symlink() and path.stat().st_size == descriptor.size_bytes

    def _is_intact(self, descriptor: Descriptor, stop: Stop) -> bool:
        """Whether the layout really has a blob: its bytes are hashed, once a run."""
        if descriptor.digest in self._intact:
            return True
        if not self._has_size(descriptor):
            return False
        hasher = descriptor.digest.hasher()
        with contextlib.suppress(OSError), (self.folder / blob_path(descriptor.digest)).open("rb") as file:
            while part := file.read(limits.COPY_BUFFER_BYTES):
                stop.check()
                hasher.update(part)
        if hasher.hexdigest() != descriptor.digest.hex:
            return False
        self._intact.add(descriptor.digest)
        return True

    def _named(self, one: Wanted) -> str | None:
        """The digest that the layout has for a name."""
        name = _reference_name(one)
        for entry in reversed(self._read_index()["manifests"]):  # a door stands before its image
            if name is None and entry.get("digest") == str(one.image.digest):
                return str(one.image.digest)
            if name is not None and _annotations(entry).get(REFERENCE_NAME) == name:
                return str(entry.get("digest"))
        return None

    @staticmethod
    def _door(one: Wanted) -> tuple[Descriptor, bytes] | None:
        raw = oci_door(replace(one.image, name=Reference.parse(one.target)))
        return None if raw is None else (Descriptor(OCI_INDEX, Digest.of(raw), len(raw)), raw)

    def _name(self, one: Wanted, door: Descriptor | None) -> None:
        """Put the image into index.json, as the last step."""
        name, index = _reference_name(one), self._read_index()
        entry = _entry(one.image.root.descriptor)
        entries = [entry]
        if name is not None:
            entry["annotations"] = {REFERENCE_NAME: name, _CONTAINERD_NAME: name}
        if door is not None:
            entries.insert(0, {**_entry(door), "annotations": {REFERENCE_NAME: name}})
        others = [
            other
            for other in index["manifests"]
            if _annotations(other).get(REFERENCE_NAME) != name
            or (name is None and other.get("digest") != entry["digest"])
        ]
        content = msgspec.json.encode({**index, "manifests": [*others, *entries]}, order="sorted")
        write_atomically(self.folder / "index.json", content)

    def _require_layout(self) -> None:
        marker = self.folder / "oci-layout"
        try:
            found = msgspec.json.decode(read_bounded(marker, limits.COPY_BUFFER_BYTES))
        except PathMissing as error:
            others = [path.name for path in self.folder.iterdir() if not path.name.startswith(".")]
            if others:
                raise self._no_layout("it holds other files") from error
            write_atomically(self.folder / "index.json", _empty_index())
            write_atomically(marker, _LAYOUT)
            return
        except msgspec.DecodeError as error:
            raise self._no_layout("its oci-layout is not JSON") from error
        if not isinstance(found, dict) or found.get("imageLayoutVersion") != "1.0.0":
            raise self._no_layout("its version is not 1.0.0")

    def _read_index(self) -> dict[str, Any]:
        try:
            index = msgspec.json.decode(read_bounded(self.folder / "index.json", limits.MAX_BUNDLE_MANIFEST_BYTES))
        except PathMissing:
            index = msgspec.json.decode(_empty_index())
        except msgspec.DecodeError as error:
            raise self._no_layout("its index.json is not JSON") from error
        entries = index.get("manifests") if isinstance(index, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._no_layout("its index.json has no list of manifests")
        return dict(index)

    def _no_layout(self, why: str) -> TargetCannotHold:
        return TargetCannotHold(
            f"{self.folder} is no OCI image layout: {why}.",
            hint="Choose an empty folder, a new one, or an existing layout.",
            path=str(self.folder),
        )


def _reference_name(one: Wanted) -> str | None:
    target = Reference.parse(one.target)
    return str(target.with_digest(None)) if target.tag else None


def _entry(descriptor: Descriptor) -> dict[str, object]:
    return {
        "mediaType": descriptor.media_type,
        "digest": str(descriptor.digest),
        "size": descriptor.size_bytes,
    }


def _annotations(entry: dict[str, Any]) -> dict[str, Any]:
    found = entry.get("annotations")
    return found if isinstance(found, dict) else {}


def _empty_index() -> bytes:
    return msgspec.json.encode({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}, order="sorted")
