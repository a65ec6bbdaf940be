from __future__ import annotations

import json

import pytest

from doubles.image_factory import ImageDouble, image, index, noise_layer
from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import PlatformNotFound, RegistryProtocolError, UnsupportedImage
from transload.shared.image import (
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Image,
    ImageIndex,
    ManifestDocument,
    parse_document,
)
from transload.shared.image_graph import build_image, select_platform
from transload.shared.platforms import Platform
from transload.shared.references import Reference

NAME = Reference.parse("reg.example/app:1")


class Shelf:
    """Documents and configs by digest, as a registry or a bundle has them; counts what is asked for."""

    def __init__(self, *doubles: ImageDouble) -> None:
        self.blobs: dict[Digest, bytes] = {}
        self.asked: list[Digest] = []
        for double in doubles:
            self.blobs.update(double.blobs)

    def put(self, fields: object, media_type: str) -> ManifestDocument:
        raw = json.dumps(fields).encode()
        self.blobs[Digest.of(raw)] = raw
        return ManifestDocument(raw, media_type, Digest.of(raw))

    def document(self, descriptor: Descriptor) -> ManifestDocument:
        self.asked.append(descriptor.digest)
        return ManifestDocument(self.blobs[descriptor.digest], descriptor.media_type, descriptor.digest)

    def config(self, descriptor: Descriptor) -> bytes:
        self.asked.append(descriptor.digest)
        return self.blobs[descriptor.digest]

    def build(self, root: ManifestDocument) -> Image:
        return build_image(NAME, NAME, root.digest, root, self.document, self.config)


def entry(document: ManifestDocument, platform: str = "", **fields: object) -> dict[str, object]:
    found: dict[str, object] = {
        "mediaType": document.media_type, "digest": str(document.digest), "size": len(document.raw), **fields,
    }  # fmt: skip
    if platform:
        parts = Platform.parse(platform)
        found["platform"] = {"os": parts.os, "architecture": parts.architecture, "variant": parts.variant}
    return found


@pytest.fixture
def amd64() -> ImageDouble:
    return image("reg.example/app:1", [noise_layer("a")])


@pytest.fixture
def arm64() -> ImageDouble:
    return image("reg.example/app:1", [noise_layer("b")], platform="linux/arm64/v8")


def test_a_manifest_alone_has_its_configs_platform(arm64: ImageDouble) -> None:
    shelf = Shelf(arm64)
    built = shelf.build(arm64.image.root)
    assert built.platform == Platform("linux", "arm64", "v8")
    assert len(built.documents) == len(built.manifests) == 1
    assert built.digest == arm64.image.digest
    assert not built.is_index


def test_an_index_is_walked_whole_each_document_once(amd64: ImageDouble, arm64: ImageDouble) -> None:
    shelf = Shelf(amd64, arm64)
    inner = shelf.put({"schemaVersion": 2, "manifests": [entry(arm64.image.root, "linux/arm64/v8")]}, OCI_INDEX)
    root = shelf.put(
        {
            "schemaVersion": 2,
            "manifests": [
                entry(amd64.image.root, "linux/amd64"), entry(inner), entry(amd64.image.root, "linux/amd64"),
            ],
        },
        OCI_INDEX,
    )  # fmt: skip
    built = shelf.build(root)
    assert [document.digest for document in built.documents] == [
        root.digest, amd64.image.digest, inner.digest, arm64.image.digest,
    ]  # fmt: skip
    assert [str(manifest.platform) for manifest in built.manifests] == ["linux/amd64", "linux/arm64/v8"]
    assert built.platform is None


def test_an_attestation_is_carried_and_its_config_not_asked_for(amd64: ImageDouble) -> None:
    whole = index("reg.example/app:1", [amd64], attestation=True)
    shelf = Shelf(whole)
    built = shelf.build(whole.image.root)
    attestation = next(manifest for manifest in built.manifests if not manifest.is_runnable)
    assert attestation.config.digest not in shelf.asked
    assert len(built.documents) == 3


def test_an_endless_nest_is_refused() -> None:
    shelf = Shelf()
    document = shelf.put({"schemaVersion": 2, "manifests": []}, OCI_INDEX)
    for _ in range(limits.MAX_INDEX_DEPTH):
        document = shelf.put({"schemaVersion": 2, "manifests": [entry(document)]}, OCI_INDEX)
    with_room = parse_document(document)
    assert isinstance(with_room, ImageIndex)
    deeper = shelf.put({"schemaVersion": 2, "manifests": [entry(document)]}, OCI_INDEX)
    with pytest.raises(RegistryProtocolError, match="nested"):
        shelf.build(deeper)


def test_too_many_manifests_are_refused(
    monkeypatch: pytest.MonkeyPatch, amd64: ImageDouble, arm64: ImageDouble
) -> None:
    monkeypatch.setattr(limits, "MAX_INDEX_MANIFESTS", 2)
    shelf = Shelf(amd64, arm64)
    root = shelf.put({"schemaVersion": 2, "manifests": [entry(amd64.image.root), entry(arm64.image.root)]}, OCI_INDEX)
    with pytest.raises(RegistryProtocolError, match="More than 2"):
        shelf.build(root)


def test_an_index_that_claims_another_architecture_is_refused(arm64: ImageDouble) -> None:
    shelf = Shelf(arm64)
    root = shelf.put({"schemaVersion": 2, "manifests": [entry(arm64.image.root, "linux/amd64")]}, OCI_INDEX)
    with pytest.raises(PlatformNotFound, match=r"listed for linux/amd64, but its config says linux/arm64/v8"):
        shelf.build(root)


def test_layers_and_diff_ids_must_pair() -> None:
    two = {"rootfs": {"type": "layers", "diff_ids": ["sha256:" + "0" * 64, "sha256:" + "1" * 64]}}
    with pytest.raises(RegistryProtocolError, match="1 layers, but its config names 2"):
        image("reg.example/app:1", [noise_layer("a")], config_changes=two)


def test_foreign_layers_cannot_be_carried(amd64: ImageDouble) -> None:
    shelf = Shelf(amd64)
    fields = json.loads(amd64.image.root.raw)
    fields["layers"][0]["mediaType"] = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
    with pytest.raises(UnsupportedImage, match="foreign layer"):
        shelf.build(shelf.put(fields, OCI_MANIFEST))


def an_index(*platforms: str, **attestation: object) -> ImageIndex:
    shelf = Shelf()
    children = [entry(shelf.put({"n": n}, OCI_MANIFEST), platform) for n, platform in enumerate(platforms)]
    if attestation:
        children.insert(0, entry(shelf.put({"n": "att"}, OCI_MANIFEST), **attestation))  # type: ignore[arg-type]
    parsed = parse_document(shelf.put({"schemaVersion": 2, "manifests": children}, OCI_INDEX))
    assert isinstance(parsed, ImageIndex)
    return parsed


@pytest.mark.parametrize(
    ("there", "wanted", "chosen"),
    [
        (["linux/arm64/v8", "linux/amd64"], "linux/amd64", 1),
        (["linux/arm/v6", "linux/arm/v7"], "linux/arm/v7", 1),
        (["linux/arm/v6", "linux/arm/v7"], "linux/arm", 0),
        (["linux/amd64/v3", "linux/amd64"], "linux/amd64", 1),
        (["linux/arm64/v8"], "linux/arm64", 0),
        (["linux/arm64"], "linux/arm64/v8", 0),
        (["windows/amd64", "linux/amd64"], "linux/amd64", 1),
    ],
)
def test_the_child_for_a_platform(there: list[str], wanted: str, chosen: int) -> None:
    found = an_index(*there)
    assert select_platform(found, Platform.parse(wanted), NAME) == found.manifests[chosen]


def test_attestations_are_never_picked() -> None:
    found = an_index("linux/amd64", platform="linux/amd64", annotations={
        "vnd.docker.reference.type": "attestation-manifest"})  # fmt: skip
    assert select_platform(found, Platform.parse("linux/amd64"), NAME) == found.manifests[1]


def test_a_platform_that_is_not_there_names_those_that_are() -> None:
    found = an_index("linux/arm64/v8", "linux/s390x", platform="unknown/unknown")
    with pytest.raises(PlatformNotFound, match="it has: linux/arm64/v8, linux/s390x") as caught:
        select_platform(found, Platform.parse("linux/amd64"), NAME)
    assert "--all-platforms" in caught.value.hint
    assert str(NAME) in caught.value.message
