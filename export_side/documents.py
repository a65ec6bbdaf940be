"""The small files of a bundle, and so its exact size before anything is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from transload.export_side.bundle_readme import README_NAME, bundle_readme
from transload.export_side.journal import BundleIdentity
from transload.export_side.plan import ExportPlan
from transload.manifests import bundle_manifest, checksums_file
from transload.manifests.bundle_manifest import (
    IMAGES_ARTIFACT,
    ArtifactEntry,
    BlobEntry,
    BundleManifest,
    DescriptionEntry,
    ImageEntry,
)
from transload.shared.image import Image

SIGNATURE_NAME = "SHA256SUMS.sig"
_HEX_OF_ANY_FILE = "0" * 64


def bundle_manifest_of(plan: ExportPlan, identity: BundleIdentity) -> BundleManifest:
    """The content of bundle.json."""
    places = plan.places
    return BundleManifest(
        bundle_id=identity.bundle_id,
        exporter=identity.exporter,
        destination=identity.destination,
        sequence=identity.sequence,
        previous=identity.previous,
        created=identity.created,
        tool=f"transload {version('transload')}",
        images=tuple(_image_entry(image) for image in plan.images),
        blobs=tuple(
            BlobEntry(digest=str(digest), size=place.size_bytes, artifact=IMAGES_ARTIFACT, offset=place.offset)
            for digest, place in places.items()
        ),
        artifacts=(
            ArtifactEntry(
                name=IMAGES_ARTIFACT,
                kind="docker-archive",
                size=plan.layout.size_bytes,
                block_size=4194304,
                blocks=plan.chunks.blocks_file_name,
                chunks=plan.chunks.chunks,
            ),
        ),
        failed=plan.failed,
        descriptions=tuple(
            DescriptionEntry(name=one.name, repository=one.repository, size=len(one.content))
            for one in plan.descriptions
        ),
    )


def documents(plan: ExportPlan, identity: BundleIdentity) -> dict[str, bytes]:
    """bundle.json, README.txt and descriptions, which are known before anything is fetched."""
    manifest = bundle_manifest_of(plan, identity)
    return {
        bundle_manifest.FILE_NAME: bundle_manifest.encode(manifest),
        README_NAME: bundle_readme(manifest),
        **{one.name: one.content for one in plan.descriptions},
    }


def bundle_file_sizes(plan: ExportPlan, identity: BundleIdentity, signature_bytes: int) -> Mapping[str, int]:
    """Every file of the bundle with its exact size.

    Args:
        plan: What is in it.
        identity: Of the bundle.
        signature_bytes: Size of the signature file, which depends on the key.
    """
    sizes = {chunk.name: chunk.size for chunk in plan.chunks.chunks}
    sizes[plan.chunks.blocks_file_name] = plan.chunks.blocks_file_size_bytes
    sizes.update({name: len(content) for name, content in documents(plan, identity).items()})
    sizes[checksums_file.FILE_NAME] = len(checksums_file.encode(dict.fromkeys(sizes, _HEX_OF_ANY_FILE)))
    sizes[SIGNATURE_NAME] = signature_bytes
    return sizes


def _image_entry(image: Image) -> ImageEntry:
    has_platform = image.platform is not None and image.platform.architecture and not image.is_index
    return ImageEntry(
        reference=str(image.reference),
        name=str(image.name),
        source_digest=str(image.source_digest),
        digest=str(image.digest),
        media_type=image.root.media_type,
        platform=str(image.platform) if has_platform else None,
        blobs=tuple(str(descriptor.digest) for descriptor in image.descriptors()),
    )
