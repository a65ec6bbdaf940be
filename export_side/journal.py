"""The journal of an unfinished bundle: its frozen plan, and which blobs already lie in place.

One JSON value a line. The first is the header, written atomically before the first byte of the bundle; every other
records how many bytes of one blob are on disk, the last record of a blob counting. The records are hints and never
trusted: a rerun hashes what is on disk. So they are appended without syncing, and a torn last line is no harm.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from transload.export_side.descriptions import Description
from transload.export_side.plan import ExportPlan
from transload.manifests.bundle_manifest import FailedEntry
from transload.shared import limits
from transload.shared.atomic_files import fault_point, read_bounded, reporting_write_errors, write_atomically
from transload.shared.digests import Digest
from transload.shared.errors import StateUnreadable, TransloadError
from transload.shared.image import Image, ImageManifest, ManifestDocument, parse_document
from transload.shared.platforms import Platform
from transload.shared.references import Reference

SUFFIX: Final = ".journal"
_FORMAT: Final = "transload-journal"
_MOST_BYTES: Final = 1 * limits.GIB
"""Manifests are at most 4 MiB and usually 5 KiB; a journal beyond this is not one."""


class BundleIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What distinguishes a bundle from others of the same content.

    Attributes:
        bundle_id: `<destination>-<sequence>-<date>-<4 hex of the exporter>`.
        exporter: The exporter's random id.
        destination: Whom it is for.
        sequence: Its number for that destination.
        previous: The bundle before it.
        created: UTC time, `YYYY-MM-DDTHH:MM:SSZ`.
    """

    bundle_id: str
    exporter: str
    destination: str
    sequence: int
    previous: str | None
    created: str


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    media_type: str
    digest: str
    raw: bytes


class _FrozenImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reference: str
    name: str
    source_digest: str
    platform: Platform | None
    documents: tuple[_Document, ...]
    platforms: tuple[Platform | None, ...]


class _Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    repository: str
    content: bytes


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["transload-journal"] = _FORMAT
    version: Literal[1] = 1
    fingerprint: str
    identity: BundleIdentity
    chunk_size_bytes: int
    images: tuple[_FrozenImage, ...]
    failed: tuple[FailedEntry, ...]
    descriptions: tuple[_Description, ...] = ()


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    blob: str
    bytes: int


class Journal:
    """The journal of one unfinished bundle. Records may be added from several threads.

    Attributes:
        path: The file.
        fingerprint: Of the request.
        identity: Of the bundle.
        plan: Frozen when the bundle was begun, less the images that failed since.
        placed_bytes: Of every blob that was begun, how many bytes were put in place.
    """

    def __init__(
        self, path: Path, fingerprint: str, identity: BundleIdentity, plan: ExportPlan, placed: Mapping[Digest, int]
    ) -> None:
        self.path = path
        self.fingerprint = fingerprint
        self.identity = identity
        self.plan = plan
        self.placed_bytes = dict(placed)
        self._lock = threading.Lock()
        self._descriptor: int | None = None

    @classmethod
    def create(cls, path: Path, fingerprint: str, identity: BundleIdentity, plan: ExportPlan) -> Journal:
        """Begin a bundle: freeze its plan.

        Raises:
            WriteFailed, NotEnoughSpace: There is no journal then.
        """
        journal = cls(path, fingerprint, identity, plan, {})
        journal._write_whole()
        return journal

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Read the journal of an unfinished bundle.

        Raises:
            StateUnreadable: Its header cannot be understood.
        """
        lines = read_bounded(path, _MOST_BYTES).split(b"\n")
        try:
            header = msgspec.json.decode(lines[0], type=_Header)
            images = tuple(_thaw(image) for image in header.images)
        except (msgspec.DecodeError, TransloadError) as error:
            raise StateUnreadable(
                f"The journal {path} of an unfinished bundle cannot be understood: {error}.",
                hint="Run the command with --restart to throw the unfinished bundle away.",
                path=str(path),
            ) from error
        descriptions = tuple(Description(one.name, one.repository, one.content) for one in header.descriptions)
        plan = ExportPlan(images, header.failed, header.chunk_size_bytes, descriptions)
        placed: dict[Digest, int] = {}
        for line in lines[1:]:
            try:
                record = msgspec.json.decode(line, type=_Record)
                placed[Digest.parse(record.blob)] = record.bytes
            except (msgspec.DecodeError, TransloadError):  # noqa: PERF203 - torn: the run was killed while it wrote it
                continue
        return cls(path, header.fingerprint, header.identity, plan, placed)

    @property
    def asked_for(self) -> list[str]:
        """The references that the bundle was begun for, those that failed among them."""
        named = {str(image.reference) for image in self.plan.images} | {one.reference for one in self.plan.failed}
        return sorted(named)

    def record(self, digest: Digest, placed_bytes: int) -> None:
        """Note how many bytes of a blob are in place.

        Raises:
            WriteFailed, NotEnoughSpace: What the operating system said.
        """
        # The newline goes first: after a torn line it ends that one, and only that one is lost.
        line = b"\n" + msgspec.json.encode(_Record(str(digest), placed_bytes))
        with self._lock, reporting_write_errors(self.path):
            if self._descriptor is None:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            fault_point(f"journal {digest.short} {placed_bytes}")
            os.write(self._descriptor, line)
            self.placed_bytes[digest] = placed_bytes

    def change_plan(self, plan: ExportPlan, placed: Mapping[Digest, int]) -> None:
        """Freeze another plan for the same bundle, after images have failed.

        Raises:
            WriteFailed, NotEnoughSpace: The journal is as before.
        """
        self.close()
        self.plan, self.placed_bytes = plan, dict(placed)
        self._write_whole()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def remove(self) -> None:
        """Remove the file: the bundle is sealed, or thrown away."""
        self.close()
        with reporting_write_errors(self.path):
            fault_point(f"remove {self.path.name}")
            self.path.unlink(missing_ok=True)

    def _write_whole(self) -> None:
        header = _Header(
            fingerprint=self.fingerprint,
            identity=self.identity,
            chunk_size_bytes=self.plan.chunk_size_bytes,
            images=tuple(_freeze(image) for image in self.plan.images),
            failed=self.plan.failed,
            descriptions=tuple(_Description(one.name, one.repository, one.content) for one in self.plan.descriptions),
        )
        records = [_Record(str(digest), placed) for digest, placed in self.placed_bytes.items()]
        write_atomically(self.path, b"\n".join(msgspec.json.encode(value) for value in (header, *records)))


def _freeze(image: Image) -> _FrozenImage:
    documents = tuple(_Document(one.media_type, str(one.digest), one.raw) for one in image.documents)
    platforms = tuple(manifest.platform for manifest in image.manifests)
    return _FrozenImage(
        str(image.reference), str(image.name), str(image.source_digest), image.platform, documents, platforms
    )


def _thaw(frozen: _FrozenImage) -> Image:
    documents = []
    for one in frozen.documents:
        digest = Digest.parse(one.digest)
        if not digest.matches(one.raw):
            raise StateUnreadable(f"manifest {one.digest} does not have its digest")
        documents.append(ManifestDocument(one.raw, one.media_type, digest))
    parsed = [manifest for manifest in map(parse_document, documents) if isinstance(manifest, ImageManifest)]
    manifests = tuple(
        replace(manifest, platform=platform) for manifest, platform in zip(parsed, frozen.platforms, strict=True)
    )
    return Image(
        Reference.parse(frozen.reference),
        Reference.parse(frozen.name),
        Digest.parse(frozen.source_digest),
        tuple(documents),
        manifests,
        frozen.platform,
    )
