"""Documents of many images: held once, bounded together, and in agreement with the references that name digests."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from doubles.bundle_factory import BundleDraft, tiny_images
from doubles.image_factory import ImageDouble, image
from doubles.import_runs import open_bundle
from transload.export_side.plan import make_plan
from transload.shared import errors, limits
from transload.shared.digests import Digest
from transload.shared.image import OCI_INDEX, Image, ManifestDocument
from transload.shared.references import Reference


def bulky_images(count: int) -> list[ImageDouble]:
    """Images under many names that are one and the same large, empty index."""
    raw = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [], "annotations": {"x": "y" * 100_000}})
    document = ManifestDocument(raw.encode(), OCI_INDEX, Digest.of(raw.encode()))
    names = [Reference.parse(f"reg.example/bulky/n{number}:1") for number in range(count)]
    return [
        ImageDouble(Image(name, name, document.digest, (document,), (), None), {document.digest: document.raw})
        for name in names
    ]


def test_a_document_that_images_share_is_held_once(tmp_path: Path) -> None:
    folder = BundleDraft(bulky_images(20)).seal(tmp_path / "bundle")
    images = open_bundle(folder).images()
    assert len({id(one.root.raw) for one in images}) == 1


def test_documents_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = BundleDraft(bulky_images(20)).seal(tmp_path / "bundle")
    monkeypatch.setattr(limits, "MAX_DOCUMENTS_BYTES", 1_000_000)
    with pytest.raises(errors.MalformedBundle, match="1,000,000 bytes together"):
        open_bundle(folder).images()
    with pytest.raises(
        errors.InvalidConfiguration, match="no importer reads"
    ):  # nothing is exported that none can read
        make_plan([double.image for double in bulky_images(20)], [], limits.BLOCK_SIZE_BYTES)


def test_a_reference_by_digest_came_from_that_digest(tmp_path: Path) -> None:
    draft = BundleDraft(tiny_images())
    first, *others = draft.manifest.images
    lie = msgspec.structs.replace(first, reference=f"registry.example/tiny/one@sha256:{'0' * 64}")
    draft.manifest = msgspec.structs.replace(draft.manifest, images=(lie, *others))
    with pytest.raises(errors.ArchiveInconsistent, match="does not ask for"):
        open_bundle(draft.seal(tmp_path / "bundle")).images()


def test_a_reference_by_its_digest_is_taken(tmp_path: Path) -> None:
    double = image("registry.example/plain:1", [])
    pinned = double.renamed(f"registry.example/plain@{double.image.digest}")
    assert len(open_bundle(BundleDraft([pinned]).seal(tmp_path / "bundle")).images()) == 1
