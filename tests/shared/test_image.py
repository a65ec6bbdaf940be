from __future__ import annotations

import json

import pytest

from doubles.image_factory import image, index, noise_layer
from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import RegistryProtocolError, UnsupportedImage
from transload.shared.image import (
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    SCHEMA_1_TYPES,
    ImageConfig,
    ImageIndex,
    ImageManifest,
    ManifestDocument,
    parse_document,
)
from transload.shared.platforms import Platform

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
Fields = dict[str, object]


def descriptor(media_type: str = LAYER_TYPE, **changes: object) -> Fields:
    return {"mediaType": media_type, "digest": "sha256:" + "0" * 64, "size": 10, **changes}


def document(fields: object, media_type: str = OCI_MANIFEST) -> ManifestDocument:
    raw = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return ManifestDocument(raw, media_type, Digest.of(raw))


def manifest_fields(**changes: object) -> Fields:
    return {"schemaVersion": 2, "config": descriptor(CONFIG_TYPE), "layers": [descriptor()], **changes}


@pytest.mark.parametrize("docker", [False, True])
def test_a_manifest_is_understood_with_its_layers_in_order_and_repeats(docker: bool) -> None:
    one, two = noise_layer("one"), noise_layer("two")
    made = image("reg.example/app:1", [one, two, one], docker=docker).image
    parsed = parse_document(made.root)
    assert isinstance(parsed, ImageManifest)
    assert [layer.digest for layer in parsed.layers] == [Digest.of(one.raw), Digest.of(two.raw), Digest.of(one.raw)]
    assert parsed.layers[0].size_bytes == len(one.raw)
    assert parsed.is_runnable
    assert parsed.document.descriptor.size_bytes == len(made.root.raw)
    assert parsed.document.digest == Digest.of(made.root.raw)


def test_an_image_without_layers_is_one() -> None:
    parsed = parse_document(image("reg.example/empty:1", []).image.root)
    assert isinstance(parsed, ImageManifest)
    assert parsed.layers == ()


@pytest.mark.parametrize("docker", [False, True])
def test_an_index_is_understood(docker: bool) -> None:
    children = [
        image("reg.example/a:1", [noise_layer("a")], platform=platform, docker=docker)
        for platform in ("linux/amd64", "linux/arm64/v8")
    ]
    whole = index("reg.example/a:1", children, docker=docker, attestation=not docker).image
    parsed = parse_document(whole.root)
    assert isinstance(parsed, ImageIndex)
    assert [str(child.platform) for child in parsed.manifests][:2] == ["linux/amd64", "linux/arm64/v8"]
    assert whole.is_index
    assert [child.is_attestation for child in parsed.manifests] == [False, False, *([] if docker else [True])]


def test_every_blob_comes_once_documents_first() -> None:
    shared = noise_layer("shared")
    children = [
        image("reg.example/a:1", [shared, noise_layer(platform), shared], platform=platform)
        for platform in ("linux/amd64", "linux/arm64/v8")
    ]
    whole = index("reg.example/a:1", children).image
    listed = list(whole.descriptors())
    assert len({one.digest for one in listed}) == len(listed)
    kinds = ["document" if "manifest" in one.media_type or "index" in one.media_type else
             "config" if "config" in one.media_type else "layer" for one in listed]  # fmt: skip
    assert kinds == ["document"] * 3 + ["config"] * 2 + ["layer"] * 3
    assert listed[0].digest == whole.digest


def test_artifacts_are_not_runnable() -> None:
    for fields in (
        manifest_fields(config=descriptor("application/vnd.oci.empty.v1+json")),
        manifest_fields(layers=[descriptor("application/vnd.in-toto+json")]),
    ):
        parsed = parse_document(document(fields))
        assert isinstance(parsed, ImageManifest)
        assert not parsed.is_runnable


@pytest.mark.parametrize("media_type", SCHEMA_1_TYPES)
def test_schema_1_is_refused_by_name(media_type: str) -> None:
    with pytest.raises(UnsupportedImage, match="schema 1"):
        parse_document(document({"schemaVersion": 1}, media_type))


@pytest.mark.parametrize("media_type", ["text/html", "", "application/json"])
def test_other_media_types_are_no_images(media_type: str) -> None:
    with pytest.raises(UnsupportedImage, match="media type"):
        parse_document(document({}, media_type))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        (b"<html>502 Bad Gateway</html>", "not JSON .* begins with '<html>"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ([], "not an object"),
        (manifest_fields(mediaType=OCI_INDEX), "served as .* but says"),
        (manifest_fields(schemaVersion=1), "another kind"),
        (manifest_fields(manifests=[]), "another kind"),
        (manifest_fields(layers={}), "no list of layers"),
        (manifest_fields(layers=None), "no list of layers"),
        (manifest_fields(layers=[descriptor()] * (limits.MAX_LAYERS + 1)), "at most"),
        (manifest_fields(config=None), "config is not a descriptor"),
        (manifest_fields(layers=["x"]), r"layers\[0\] is not a descriptor"),
        (manifest_fields(layers=[descriptor(), descriptor(size=-1)]), r"layers\[1\] has the size -1"),
        (manifest_fields(layers=[descriptor(size=True)]), "size True"),
        (manifest_fields(layers=[descriptor(size=1.5)]), "size 1.5"),
        (manifest_fields(layers=[descriptor(size="10")]), "size 10"),
        (manifest_fields(layers=[descriptor(size=limits.MAX_BLOB_BYTES + 1)]), "out of range"),
        (manifest_fields(layers=[descriptor(digest="sha256:../../x")]), "bad digest"),
        (manifest_fields(layers=[descriptor(digest=5)]), "no media type or no digest"),
        (manifest_fields(layers=[descriptor(urls="http://x")]), "urls"),
        (manifest_fields(layers=[descriptor(platform="linux")]), "platform"),
        (manifest_fields(layers=[descriptor(platform={"os": 5})]), "platform"),
    ],
)  # fmt: skip
def test_malformed_manifests_say_what_is_wrong(fields: object, what: str) -> None:
    with pytest.raises(RegistryProtocolError, match=what):
        parse_document(document(fields))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"schemaVersion": 2}, "no list of manifests"),
        ({"manifests": [], "layers": []}, "another kind"),
        ({"manifests": [], "config": {}}, "another kind"),
        ({"manifests": [descriptor()] * (limits.MAX_INDEX_MANIFESTS + 1)}, "at most"),
    ],
)
def test_malformed_indexes_say_what_is_wrong(fields: object, what: str) -> None:
    with pytest.raises(RegistryProtocolError, match=what):
        parse_document(document(fields, OCI_INDEX))


def test_foreign_layers_are_known_by_their_media_type() -> None:
    parsed = parse_document(
        document(
            manifest_fields(
                layers=[
                    descriptor("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", urls=["https://x/y"]),
                    descriptor("application/vnd.oci.image.layer.nondistributable.v1.tar"),
                    descriptor(),
                ]
            ),
            DOCKER_MANIFEST,
        )
    )
    assert isinstance(parsed, ImageManifest)
    assert [layer.is_foreign for layer in parsed.layers] == [True, True, False]
    assert parsed.layers[0].urls == ("https://x/y",)


def config(**fields: object) -> ImageConfig:
    raw = json.dumps(fields).encode()
    return ImageConfig.parse(raw, Digest.of(raw))


def test_configs_are_understood() -> None:
    diff_id = "sha256:" + "1" * 64
    parsed = config(os="linux", architecture="arm64", variant="v8", rootfs={"type": "layers", "diff_ids": [diff_id]})
    assert parsed.platform == Platform("linux", "arm64", "v8")
    assert [str(digest) for digest in parsed.diff_ids] == [diff_id]
    assert config(architecture="amd64") == ImageConfig(Platform("linux", "amd64"), ())
    assert config(os="linux", architecture="amd64", variant=None, rootfs=None).platform == Platform("linux", "amd64")


@pytest.mark.parametrize(
    "fields",
    [
        {"os": 5, "architecture": "amd64"},
        {"architecture": ["amd64"]},
        {"rootfs": {"diff_ids": "sha256:x"}},
        {"rootfs": {"diff_ids": [5]}},
        {"rootfs": {"diff_ids": ["sha256:x"]}},
    ],
)
def test_malformed_configs_are_refused(fields: Fields) -> None:
    with pytest.raises(RegistryProtocolError):
        config(**fields)
