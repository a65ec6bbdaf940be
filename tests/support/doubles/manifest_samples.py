"""Bundle manifests with nothing in them but their place in an exporter's order."""

from __future__ import annotations

from transload.manifests.bundle_manifest import ArtifactEntry, BundleManifest, ChunkEntry

EXPORTER = "abcd" * 8
OTHER_EXPORTER = "ffff" * 8


def bundle_manifest(sequence: int, *, destination: str = "default", exporter: str = EXPORTER) -> BundleManifest:
    """The manifest of a bundle by its number."""
    artifact = ArtifactEntry(
        name="images.tar", kind="docker-archive", size=1024, block_size=4194304, blocks="images.blocks",
        chunks=(ChunkEntry(name="images.tar.0001", size=1024),),
    )  # fmt: skip
    return BundleManifest(
        bundle_id=_bundle_id(destination, sequence),
        exporter=exporter,
        destination=destination,
        sequence=sequence,
        previous=_bundle_id(destination, sequence - 1) if sequence > 1 else None,
        created="2024-01-01T00:00:00Z",
        tool="transload test",
        images=(),
        blobs=(),
        artifacts=(artifact,),
        failed=(),
    )


def _bundle_id(destination: str, sequence: int) -> str:
    return f"{destination}-{sequence:06d}-20240101-abcd"
