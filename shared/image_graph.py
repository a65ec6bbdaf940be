"""From one manifest or index to the whole `Image`: every document that it reaches, bounded.

Both sides build images with it: the exporter from a registry, the importer from a verified bundle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import PlatformNotFound, RegistryProtocolError, UnsupportedImage
from transload.shared.image import (
    Descriptor,
    Image,
    ImageConfig,
    ImageIndex,
    ImageManifest,
    ManifestDocument,
    parse_document,
)
from transload.shared.platforms import Platform
from transload.shared.references import Reference

FetchDocument = Callable[[Descriptor], ManifestDocument]
"""Gives the verified bytes of a manifest or index that an index names."""

FetchConfig = Callable[[Descriptor], bytes]
"""Gives the verified bytes of an image config, at most `limits.MAX_CONFIG_BYTES`."""


def build_image(
    reference: Reference,
    name: Reference,
    source_digest: Digest,
    root: ManifestDocument,
    fetch_document: FetchDocument,
    fetch_config: FetchConfig,
) -> Image:
    """Collect everything that a root document reaches.

    Args:
        reference: What was asked for.
        name: What the image is called from here on.
        source_digest: What the reference resolved to at the source.
        root: The document that is carried: a manifest, or an index with all its children.
        fetch_document: For the documents below an index.
        fetch_config: For the configs, to learn platforms.

    Raises:
        RegistryProtocolError: A graph that is malformed, too deep or points at itself.
        UnsupportedImage: A document of a kind that cannot be carried.
        PlatformNotFound: A manifest whose config runs on another architecture than its index claims.
    """
    graph = _Graph(fetch_document, fetch_config)
    graph.walk(root, None, 0)
    platform = graph.manifests[0].platform if isinstance(parse_document(root), ImageManifest) else None
    return Image(reference, name, source_digest, tuple(graph.documents.values()), tuple(graph.manifests), platform)


def select_platform(index: ImageIndex, wanted: Platform, reference: Reference) -> Descriptor:
    """The child of an index for a platform; attestations and unknown platforms are never picked.

    An exact variant is preferred to another that satisfies the wish.

    Raises:
        PlatformNotFound: No child is for that platform; the message lists those that there are.
    """
    candidates = [child for child in index.manifests if _is_image_child(child)]
    exact = [child for child in candidates if child.platform == wanted]
    satisfying = [child for child in candidates if child.platform and child.platform.satisfies(wanted)]
    chosen = exact or satisfying
    if not chosen:
        there = ", ".join(sorted({str(child.platform) for child in candidates})) or "none"
        raise PlatformNotFound(
            f"{reference} has no image for {wanted}; it has: {there}.",
            hint="Choose one with --platform, or carry them all with --all-platforms.",
            reference=str(reference),
        )
    return chosen[0]


def _is_image_child(child: Descriptor) -> bool:
    return not child.is_attestation and (child.platform is None or child.platform.is_known)


@dataclass(slots=True)
class _Graph:
    fetch_document: FetchDocument
    fetch_config: FetchConfig
    documents: dict[Digest, ManifestDocument] = field(default_factory=dict)
    manifests: list[ImageManifest] = field(default_factory=list)

    def walk(self, document: ManifestDocument, claimed: Platform | None, depth: int) -> None:
        if document.digest in self.documents:
            return
        if depth > limits.MAX_INDEX_DEPTH:
            raise RegistryProtocolError(
                f"Index {document.digest} is nested more than {limits.MAX_INDEX_DEPTH} deep; no real image is."
            )
        if len(self.documents) >= limits.MAX_INDEX_MANIFESTS:
            raise RegistryProtocolError(f"More than {limits.MAX_INDEX_MANIFESTS} manifests hang below one index.")
        self.documents[document.digest] = document
        parsed = parse_document(document)
        if isinstance(parsed, ImageManifest):
            self.manifests.append(self._with_platform(parsed, claimed))
            return
        for child in parsed.manifests:
            self.walk(self.fetch_document(child), child.platform, depth + 1)

    def _with_platform(self, manifest: ImageManifest, claimed: Platform | None) -> ImageManifest:
        foreign = next((layer for layer in manifest.layers if layer.is_foreign), None)
        if foreign is not None:
            raise UnsupportedImage(
                f"Layer {foreign.digest} of manifest {manifest.document.digest} is a foreign layer "
                f"({foreign.media_type}), which the registry need not hold.",
                hint="Images on such layers (Windows base images) cannot be carried.",
            )
        if not manifest.is_runnable:
            return replace(manifest, platform=claimed)
        config = ImageConfig.parse(self.fetch_config(manifest.config), manifest.config.digest)
        if claimed is not None and claimed.is_known and not _same_machine(config.platform, claimed):
            raise PlatformNotFound(
                f"Manifest {manifest.document.digest} is listed for {claimed}, but its config says "
                f"{config.platform}; it would not run there.",
                hint="The image is mislabelled at its source; tell its publisher.",
            )
        if config.diff_ids and len(config.diff_ids) != len(manifest.layers):
            raise RegistryProtocolError(
                f"Manifest {manifest.document.digest} has {len(manifest.layers)} layers, but its config names "
                f"{len(config.diff_ids)} diff_ids."
            )
        return replace(manifest, platform=claimed if claimed and claimed.is_known else config.platform)


def _same_machine(config: Platform, claimed: Platform) -> bool:
    if not config.architecture:
        return True
    return (config.os, config.architecture) == (claimed.os, claimed.architecture)
