"""bundle.json: canonical or refused, and every rule that the types cannot say."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from transload.manifests import bundle_manifest
from transload.manifests.bundle_manifest import (
    ArtifactEntry,
    BlobEntry,
    BundleManifest,
    ChunkEntry,
    FailedEntry,
    ImageEntry,
    decode,
    encode,
)
from transload.shared.errors import MalformedBundle, UnsupportedVersion

BLOCK = 4_194_304
DOCUMENT, CONFIG, LAYER = (f"sha256:{character * 64}" for character in "abc")
SIZE = 2 * BLOCK + 1000


def _artifact(name: str = "images.tar", size: int = SIZE, chunk: int = BLOCK) -> ArtifactEntry:
    sizes = [min(chunk, size - start) for start in range(0, size, chunk)]
    return ArtifactEntry(
        name=name,
        kind="docker-archive",
        size=size,
        block_size=4194304,
        blocks=bundle_manifest.blocks_name(name),
        chunks=tuple(
            ChunkEntry(name=bundle_manifest.chunk_name(name, number), size=chunk_size)
            for number, chunk_size in enumerate(sizes, start=1)
        ),
    )


def _image(reference: str = "reg.example/a:1", blobs: tuple[str, ...] = (DOCUMENT, CONFIG, LAYER)) -> ImageEntry:
    return ImageEntry(
        reference=reference, name=reference, source_digest=f"sha256:{'d' * 64}", digest=blobs[0] if blobs else DOCUMENT,
        media_type="application/vnd.oci.image.manifest.v1+json", platform="linux/amd64", blobs=blobs,
    )  # fmt: skip


def _blob(digest: str, offset: int, size: int = 100, artifact: str = "images.tar") -> BlobEntry:
    return BlobEntry(digest=digest, size=size, artifact=artifact, offset=offset)


def manifest(**changes: Any) -> BundleManifest:
    valid = BundleManifest(
        bundle_id="default-0001-20260615-0123",
        exporter="0123456789abcdef" * 2,
        destination="default",
        sequence=1,
        previous=None,
        created="2026-06-15T12:00:00Z",
        tool="transload 0.1.0",
        images=(_image(),),
        blobs=(_blob(DOCUMENT, 512), _blob(CONFIG, 1536), _blob(LAYER, 4096, SIZE - 4096)),
        artifacts=(_artifact(),),
        failed=(FailedEntry(reference="reg.example/b:1", error="not-found-in-registry", message="It is not there."),),
    )
    return replace(valid, **changes)


def test_a_valid_manifest_round_trips() -> None:
    assert decode(encode(manifest())) == manifest()


def test_the_bytes_are_canonical() -> None:
    raw = encode(manifest(tool='tränsload\t"1" \\ / \x1f \u2028'))
    assert raw.startswith(b'{"artifacts":[{"block_size":4194304,"blocks":"images.blocks",')
    assert raw.endswith(b'"version":1}\n')
    assert raw.count(b"\n") == 1
    assert 'tränsload\\t\\"1\\" \\\\ / \\u001f \u2028'.encode() in raw


def _tampered(old: str, new: str, raw: bytes | None = None) -> bytes:
    raw = raw if raw is not None else encode(manifest())
    assert raw.count(old.encode()) >= 1, old
    return raw.replace(old.encode(), new.encode(), 1)


NOT_CANONICAL = {
    "space": ('"version":1', '"version": 1'),
    "no newline": ("}\n", "}"),
    "two newlines": ("}\n", "}\n\n"),
    "windows newline": ("}\n", "}\r\n"),
    "leading space": ('{"artifacts"', ' {"artifacts"'),
    "trailing document": ("}\n", "}\n{}"),
    "duplicate key, same value": ('"version":1', '"version":1,"version":1'),
    "duplicate key, other value": ('"destination":"default"', '"destination":"other","destination":"default"'),
    "duplicate key inside": ('"offset":512', '"offset":0,"offset":512'),
    "unsorted keys": ('"tool":"transload 0.1.0","version":1', '"version":1,"tool":"transload 0.1.0"'),
    "float": ('"sequence":1', '"sequence":1.0'),
    "exponent": ('"sequence":1', '"sequence":1e0'),
    "leading zero": ('"sequence":1', '"sequence":01'),
    "minus zero": ('"offset":512', '"offset":-0'),
    "number as text": ('"sequence":1', '"sequence":"1"'),
    "boolean as number": ('"sequence":1', '"sequence":true'),
    "null": ('"sequence":1', '"sequence":null'),
    "missing field": ('"sequence":1,', ""),
    "missing field with a default": ('"requires":[],', ""),
    "unknown field": ('"sequence":1', '"sequence":1,"sequences":1'),
    "unknown field inside": ('"offset":512', '"offset":512,"offsets":1'),
    "needless escape": ('"transload 0.1.0"', '"tr\\u0061nsload 0.1.0"'),
    "escaped slash": ("reg.example/a:1", "reg.example\\/a:1"),
    "lone surrogate": ('"transload 0.1.0"', '"\\ud800"'),
    "raw control character": ('"transload 0.1.0"', '"a\tb"'),
    "list for object": ('{"artifacts"', '[{"artifacts"'),
    "another format": ('"format":"transload-bundle"', '"format":"transload-bundles"'),
    "version 0": ('"version":1', '"version":0'),
    "version -1": ('"version":1', '"version":-1'),
    "version as text": ('"version":1', '"version":"1"'),
    "too large a number": ('"offset":512', f'"offset":{1 << 51}'),
    "beyond 64 bits": ('"offset":512', f'"offset":{1 << 70}'),
    "negative": ('"offset":512', '"offset":-512'),
    "sequence 0": ('"sequence":1', '"sequence":0'),
    "another block size": ('"block_size":4194304', '"block_size":4194305'),
    "another kind": ('"kind":"docker-archive"', '"kind":"sif"'),
    "no artifacts": (encode(manifest())[: encode(manifest()).index(b',"blobs"')].decode(), '{"artifacts":[]'),
    "parent folder as name": ('"name":"images.tar"', '"name":"../images.tar"'),
    "absolute name": ('"name":"images.tar"', '"name":"/images.tar"'),
    "dot name": ('"name":"images.tar"', '"name":".images.tar"'),
    "newline in a name": ('"name":"images.tar"', '"name":"images.tar\\n"'),
    "upper-case digest": (f'"digest":"{DOCUMENT}"', f'"digest":"{DOCUMENT.upper()}"'),
    "short digest": (f'"digest":"{DOCUMENT}"', f'"digest":"{DOCUMENT[:-1]}"'),
    "md5": (f'"digest":"{DOCUMENT}"', f'"digest":"md5:{"a" * 32}"'),
    "destination": ('"destination":"default"', '"destination":"De fault"'),
    "newline after the destination": ('"destination":"default"', '"destination":"default\\n"'),
    "bundle id": ('"bundle_id":"default', '"bundle_id":"../default'),
    "created": ("2026-06-15T12:00:00Z", "2026-06-15T12:00:00+00:00"),
    "exporter": ('"exporter":"0123', '"exporter":"012'),
}


@pytest.mark.parametrize("case", NOT_CANONICAL)
def test_what_is_not_canonical_is_refused(case: str) -> None:
    with pytest.raises(MalformedBundle, match=re.escape("bundle.json")):
        decode(_tampered(*NOT_CANONICAL[case]))


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"\xff\xfe{}", b"\xef\xbb\xbf" + encode(manifest()), b"[" * 100_000, b'{"a":' * 100_000],
)
def test_what_is_no_manifest_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedBundle):
        decode(raw)


@pytest.mark.parametrize("version", [2, 999_999])
def test_a_later_version_is_said_to_be_one(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"version {version}"):
        decode(_tampered('"version":1', f'"version":{version}'))
    later = f'{{"format":"transload-bundle","new":{{}},"version":{version}}}'
    with pytest.raises(UnsupportedVersion):
        decode(later.encode())


def test_a_bundle_that_requires_others_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="requires other bundles"):
        decode(encode(manifest(requires=("default-0000-20260101-0123",))))


def _with_artifact(**changes: Any) -> BundleManifest:
    return manifest(artifacts=(replace(_artifact(), **changes),))


def _with_chunks(*sizes: int) -> BundleManifest:
    chunks = tuple(ChunkEntry(name=f"images.tar.{n:04d}", size=size) for n, size in enumerate(sizes, start=1))
    return _with_artifact(chunks=chunks, size=sum(sizes))


BLOBS = manifest().blobs
CHUNKS = _artifact().chunks
SECOND = _artifact("other.tar")
BROKEN_RULES = {
    "two artifacts have one name": manifest(artifacts=(_artifact(), _artifact())),
    "two files have one name": manifest(artifacts=(_artifact(), _artifact("Images.tar"))),
    "its chunks do not sum up": _with_artifact(size=SIZE + 1),
    "chunk 3 is called images.tar.0004": _with_artifact(
        chunks=(*CHUNKS[:2], replace(CHUNKS[2], name="images.tar.0004"))
    ),
    "chunk 1 is called images.tar.0002": _with_artifact(chunks=(CHUNKS[1], CHUNKS[0], CHUNKS[2])),
    "chunk images.tar.0002 has an irregular size": _with_chunks(2 * BLOCK, BLOCK, 2 * BLOCK),
    "chunk images.tar.0001 has an irregular size": _with_chunks(BLOCK + 1, BLOCK + 1, 5),
    "its last chunk is longer": _with_chunks(BLOCK, BLOCK + 1),
    "its blocks file is called": _with_artifact(blocks="images.tar.blocks"),
    "lies in nowhere.tar, which is not listed": manifest(blobs=(replace(BLOBS[0], artifact="nowhere.tar"), *BLOBS[1:])),
    f"blob {LAYER} ends outside": manifest(blobs=(*BLOBS[:2], replace(BLOBS[2], size=BLOBS[2].size + 1))),
    f"blob {DOCUMENT} ends outside": manifest(blobs=(replace(BLOBS[0], offset=SIZE), *BLOBS[1:])),
    f"blob {CONFIG} overlaps": manifest(blobs=(BLOBS[0], replace(BLOBS[1], offset=611), BLOBS[2])),
    f"blob {DOCUMENT} overlaps another or is out of order": manifest(blobs=(BLOBS[1], BLOBS[0], BLOBS[2])),
    "one blob is listed twice": manifest(blobs=(*BLOBS[:2], replace(BLOBS[2], size=10), _blob(LAYER, 4106))),
    f"names blob {LAYER}, which is not listed": manifest(blobs=BLOBS[:2]),
    "does not begin with its own document": manifest(images=(replace(_image(), digest=CONFIG),)),
    "image reg.example/a:1 does not begin": manifest(images=(_image(), _image("reg.example/a:1", ()))),
    "names a blob twice": manifest(images=(_image(blobs=(DOCUMENT, CONFIG, LAYER, LAYER)),)),
    "a blob belongs to no image": manifest(images=(_image(blobs=(DOCUMENT, CONFIG)),)),
    "two images have one name": manifest(images=(_image(), replace(_image(), reference="reg.example/b:1"))),
    "the blobs are not in ascending order": manifest(
        artifacts=(_artifact(), SECOND), blobs=(replace(BLOBS[0], artifact="other.tar"), *BLOBS[1:])
    ),
    "is no time": manifest(created="2026-02-30T12:00:00Z"),
}  # fmt: skip


@pytest.mark.parametrize("words", BROKEN_RULES)
def test_every_rule_beyond_the_types_is_checked(words: str) -> None:
    with pytest.raises(MalformedBundle, match=re.escape(words)):
        decode(encode(BROKEN_RULES[words]))


def test_blobs_of_several_artifacts_do_not_overlap_each_other() -> None:
    both = manifest(
        artifacts=(_artifact(), SECOND), blobs=(*BLOBS[:2], replace(BLOBS[2], artifact="other.tar", offset=0))
    )
    assert decode(encode(both)) == both


def test_the_same_blob_in_two_images_and_no_image_at_all_are_legal() -> None:
    decode(encode(manifest(images=(_image(), _image("reg.example/b:1", (CONFIG, LAYER))))))
    decode(encode(manifest(images=(), blobs=())))


DIGESTS = st.binary(min_size=32, max_size=32).map(lambda raw: f"sha256:{raw.hex()}")
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@given(
    st.lists(DIGESTS, min_size=1, max_size=12, unique=True),
    st.integers(1, 4),
    st.integers(1, 5 * BLOCK),
    TEXTS,
    st.none() | TEXTS,
    st.integers(1, 999_999_999),
)
def test_whatever_is_valid_round_trips(
    digests: list[str], blocks_in_chunk: int, size: int, text: str, platform: str | None, sequence: int
) -> None:
    gap = size // len(digests)
    made = manifest(
        sequence=sequence,
        tool=text,
        artifacts=(_artifact(size=size, chunk=blocks_in_chunk * BLOCK),),
        blobs=tuple(_blob(digest, number * gap, gap) for number, digest in enumerate(digests)),
        images=(replace(_image(blobs=tuple(digests)), reference=text, name=text, platform=platform),),
        failed=(FailedEntry(reference=text, error=text, message=text),),
    )
    raw = encode(made)
    assert decode(raw) == made
    assert encode(decode(raw)) == raw


@given(st.data())
def test_no_changed_byte_is_read_as_the_same_manifest(data: st.DataObject) -> None:
    raw = bytearray(encode(manifest()))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    try:
        read = decode(bytes(raw))
    except (MalformedBundle, UnsupportedVersion):
        return
    assert read != manifest()
    assert encode(read) == raw


def test_the_schema_is_one_of_the_same_fields() -> None:
    schema: Any = bundle_manifest.json_schema()
    assert set(schema["$defs"]["BundleManifest"]["properties"]) == {
        f.name for f in msgspec.structs.fields(BundleManifest)
    }
