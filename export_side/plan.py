"""From resolved images to every byte of the bundle's artifact, before a layer moves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from transload.export_side.descriptions import Description
from transload.manifests.archive_layout import ArchiveLayout, BlobPlace, hybrid_archive, unique_descriptors
from transload.manifests.bundle_manifest import IMAGES_ARTIFACT, FailedEntry
from transload.manifests.chunks import ChunkPlan
from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import InvalidConfiguration, TargetNamesCollide, raise_all
from transload.shared.image import Descriptor, Image
from transload.shared.references import Reference


@dataclass(frozen=True)
class ExportPlan:
    """What a bundle will hold and where.

    Args:
        images: In the order of the archive.
        failed: What was asked for and is not in it.
        chunk_size_bytes: A whole number of blocks.
        descriptions: Texts about the images, by name.
    """

    images: tuple[Image, ...]
    failed: tuple[FailedEntry, ...]
    chunk_size_bytes: int
    descriptions: tuple[Description, ...] = ()

    @cached_property
    def layout(self) -> ArchiveLayout:
        """Every byte of images.tar."""
        return hybrid_archive(self.images)

    @cached_property
    def chunks(self) -> ChunkPlan:
        """Its chunk files."""
        return ChunkPlan(IMAGES_ARTIFACT, self.layout.size_bytes, self.chunk_size_bytes)

    @cached_property
    def descriptors(self) -> dict[Digest, Descriptor]:
        """Every blob once, in the order of the archive."""
        return {descriptor.digest: descriptor for descriptor in unique_descriptors(self.images)}

    @cached_property
    def places(self) -> dict[Digest, BlobPlace]:
        """Where each blob lies in the archive."""
        return {place.digest: place for place in self.layout.blobs}

    @cached_property
    def sources(self) -> dict[Digest, tuple[Reference, ...]]:
        """Where each blob can be fetched: the repositories of all images that use it, in order, each once."""
        found: dict[Digest, dict[str, Reference]] = {}
        for image in self.images:
            for descriptor in image.descriptors():
                found.setdefault(descriptor.digest, {}).setdefault(image.reference.repository, image.reference)
        return {digest: tuple(references.values()) for digest, references in found.items()}

    @property
    def blob_bytes(self) -> int:
        """Size of all blobs, each once."""
        return sum(descriptor.size_bytes for descriptor in self.descriptors.values())

    @property
    def shared_bytes(self) -> int:
        """What is saved because images share blobs."""
        return sum(image_size(image) for image in self.images) - self.blob_bytes

    def images_using(self, digests: Collection[Digest]) -> tuple[Image, ...]:
        """The images that need any of these blobs."""
        return tuple(
            image for image in self.images if any(descriptor.digest in digests for descriptor in image.descriptors())
        )

    def without(self, images: Collection[Image], failed: Sequence[FailedEntry]) -> ExportPlan:
        """The plan for the other images, with these failures added."""
        kept = tuple(image for image in self.images if image not in images)
        repositories = {image.reference.repository for image in kept}
        descriptions = tuple(one for one in self.descriptions if one.repository in repositories)
        return ExportPlan(kept, tuple(sort_failed((*self.failed, *failed))), self.chunk_size_bytes, descriptions)


def make_plan(images: Sequence[Image], failed: Sequence[FailedEntry], chunk_size_bytes: int) -> ExportPlan:
    """Plan a bundle: the same for the same images, in whatever order they were asked for.

    Args:
        images: Resolved images; one asked for twice counts once.
        failed: What could not be resolved.
        chunk_size_bytes: A whole number of blocks.

    Raises:
        TargetNamesCollide: Two different images would have one name in the archive.
        InvalidConfiguration: Too many chunks, or more documents than an importer reads.
    """
    named: dict[str, Image] = {}
    errors = []
    for image in images:
        name = archive_name(image.name)
        other = named.setdefault(name, image)
        if other.digest != image.digest:
            errors.append(
                TargetNamesCollide(
                    f"Two different images would both be called {name}: {other.reference} ({other.digest}) and "
                    f"{image.reference} ({image.digest}).",
                    hint="Give one of them another name with `rename` in an image list.",
                    name=name,
                    references=[str(other.reference), str(image.reference)],
                )
            )
    raise_all(errors)
    plan = ExportPlan(tuple(named[name] for name in sorted(named)), tuple(sort_failed(failed)), chunk_size_bytes)
    if sum(len(document.raw) for image in plan.images for document in image.documents) > limits.MAX_DOCUMENTS_BYTES:
        raise InvalidConfiguration(
            f"The manifests and indexes of these {len(plan.images):,} images have more than "
            f"{limits.MAX_DOCUMENTS_BYTES:,} bytes together, which no importer reads.",
            hint="Export them in several bundles.",
        )
    if plan.images:
        _ = plan.chunks  # raises now if the chunks cannot be numbered
    return plan


def archive_name(name: Reference) -> str:
    """What an image is called in the archive: by tag if it has one, else by digest."""
    return str(name.with_digest(None)) if name.tag else str(name)


def image_size(image: Image) -> int:
    """Size of everything that an image needs, each blob once."""
    return sum(descriptor.size_bytes for descriptor in image.descriptors())


def sort_failed(failed: Sequence[FailedEntry]) -> list[FailedEntry]:
    """Failures in an order that does not depend on threads."""
    return sorted(failed, key=lambda entry: (entry.reference, entry.error, entry.message))
