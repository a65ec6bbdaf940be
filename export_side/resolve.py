"""From references to images: which documents a registry has for them, all compared with their digests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

from transload.export_side.selection import Failure, Wanted
from transload.manifests.image_list import ALL_PLATFORMS
from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import ContentMismatch, PlatformNotFound, RegistryProtocolError
from transload.shared.image import Descriptor, Image, ImageIndex, ManifestDocument, parse_document
from transload.shared.image_graph import build_image, select_platform
from transload.shared.platforms import Platform
from transload.shared.references import Reference
from transload.shared.registry.client import RegistryClient
from transload.shared.registry.options import RegistryDirectory
from transload.shared.workers import Stop, run_parallel

_KEPT_BYTES = 32 * limits.MIB
"""Configs kept in memory until they are written; further ones are fetched once more."""


class SourceRegistries:
    """The registries that a run reads from: one client a host, made when it is first needed.

    Args:
        directory: Logins and trust, by host.
        stop: Ends the run.
    """

    def __init__(self, directory: RegistryDirectory, stop: Stop) -> None:
        self._directory = directory
        self._stop = stop
        self._clients: dict[str, RegistryClient] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> SourceRegistries:  # noqa: PYI034 - Self is in typing from Python 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.close()

    def client(self, reference: Reference) -> RegistryClient:
        """The client for a reference's host."""
        with self._lock:
            if reference.host not in self._clients:
                settings = self._directory.settings_for(reference.host)
                self._clients[reference.host] = RegistryClient(settings, stop=self._stop)
            return self._clients[reference.host]

    def current_digest(self, reference: Reference) -> Digest | None:
        """What a reference names now, by a HEAD request; None if it is gone."""
        return self.client(reference).head_manifest(reference.path, reference.version)

    def list_tags(self, repository: Reference) -> list[str]:
        """Every tag that the registry lists for a repository."""
        return self.client(repository).list_tags(repository.path)

    def pieces(self, reference: Reference, descriptor: Descriptor, start: int) -> Iterator[bytes]:
        """A blob's bytes from an offset to its end, not yet compared with its digest."""
        return self.client(reference).blob_pieces(reference.path, descriptor, start)


@dataclass(slots=True)
class Resolved:
    """What a registry said about the images of a selection.

    Attributes:
        images: Those that can be had, in the order of the selection.
        failures: Those that cannot, and why, in the same order.
        contents: Documents and configs whose bytes are at hand.
    """

    images: list[Image] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    contents: dict[Digest, bytes] = field(default_factory=dict)


def resolve(wanted: Sequence[Wanted], sources: SourceRegistries, *, jobs: int, stop: Stop) -> Resolved:
    """Resolve every image, several at once; one that fails does not stop the others.

    Args:
        wanted: The selection.
        sources: Where they are.
        jobs: How many at once.
        stop: Ends the run.
    """
    kept = _KeptContents()
    found: dict[Wanted, Image] = {}
    failed: dict[Wanted, Failure] = {}

    def work(one: Wanted) -> Image:
        return _Resolver(one, sources.client(one.reference), kept).resolve()

    with contextlib.closing(run_parallel(wanted, work, jobs=jobs, stop=stop)) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None:
                failed[outcome.item] = Failure(str(outcome.item.reference), outcome.error)
            elif outcome.result is not None:
                found[outcome.item] = outcome.result
    documents = {document.digest: document.raw for image in found.values() for document in image.documents}
    return Resolved(
        [found[one] for one in wanted if one in found],
        [failed[one] for one in wanted if one in failed],
        {**kept.contents, **documents},
    )


@dataclass(slots=True)
class _KeptContents:
    contents: dict[Digest, bytes] = field(default_factory=dict)
    size_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, digest: Digest, content: bytes) -> None:
        with self.lock:
            if digest not in self.contents and self.size_bytes + len(content) <= _KEPT_BYTES:
                self.contents[digest] = content
                self.size_bytes += len(content)


@dataclass(slots=True)
class _Resolver:
    wanted: Wanted
    client: RegistryClient
    kept: _KeptContents

    def resolve(self) -> Image:
        reference, platform = self.wanted.reference, self.wanted.platform
        source = root = self.client.get_manifest(reference.path, reference.version)
        child: Descriptor | None = None
        if platform != ALL_PLATFORMS:
            for _ in range(limits.MAX_INDEX_DEPTH + 1):
                parsed = parse_document(root)
                if not isinstance(parsed, ImageIndex):
                    break
                child = select_platform(parsed, platform, reference)
                root = self._document(child)
            else:
                raise RegistryProtocolError(
                    f"{reference}: indexes nested more than {limits.MAX_INDEX_DEPTH} deep; no real image is."
                )
        image = build_image(reference, self.wanted.name, source.digest, root, self._document, self._config)
        if platform == ALL_PLATFORMS:
            return image
        return self._checked(image, child.platform if child else None, platform)

    def _checked(self, image: Image, claimed: Platform | None, wanted: Platform) -> Image:
        """The image, if its config runs on what was asked for, with the platform that its index claims."""
        found = image.platform
        if found is None or not found.architecture:  # an artifact, or a config that does not say
            return image
        # An index may know the variant that a config leaves out, but not another machine.
        same_machine = claimed is not None and (found.os, found.architecture) == (claimed.os, claimed.architecture)
        if not same_machine and (claimed is not None or not found.satisfies(wanted)):
            listed = f"is listed for {claimed}, but its config says {found}" if claimed else f"is for {found} only"
            raise PlatformNotFound(
                f"{image.reference} {listed}; asked for was {wanted}.",
                hint="The image is mislabelled at its source; tell its publisher."
                if claimed
                else f"Ask for it with --platform {found}, or `platform: {found}` in an image list.",
                reference=str(image.reference),
                found=str(found),
                wanted=str(wanted),
            )
        # The manifest keeps what its config says: that alone can be read from the bundle again.
        return replace(image, platform=claimed) if same_machine else image

    def _document(self, descriptor: Descriptor) -> ManifestDocument:
        document = self.client.get_manifest(self.wanted.reference.path, str(descriptor.digest))
        if document.digest != descriptor.digest or len(document.raw) != descriptor.size_bytes:
            raise ContentMismatch(
                f"{self.wanted.reference}: manifest {descriptor.digest} of {descriptor.size_bytes} bytes came as "
                f"{document.digest} of {len(document.raw)} bytes."
            )
        if document.media_type != descriptor.media_type:
            raise RegistryProtocolError(
                f"{self.wanted.reference}: manifest {descriptor.digest} is listed as {descriptor.media_type[:100]} "
                f"but was served as {document.media_type[:100]}."
            )
        return document

    def _config(self, descriptor: Descriptor) -> bytes:
        content = self.client.get_small_blob(self.wanted.reference.path, descriptor, limits.MAX_CONFIG_BYTES)
        self.kept.keep(descriptor.digest, content)
        return content
