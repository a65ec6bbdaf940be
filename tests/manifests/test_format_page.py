"""FORMAT.md against the code: a writer made from the page's words alone gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from doubles.bundle_factory import BundleDraft, archive_bytes, small_images, tiny_images
from doubles.image_factory import ImageDouble, image, index, noise_layer
from transload.manifests import bundle_manifest
from transload.manifests.archive_layout import TarPlan, hybrid_archive
from transload.manifests.chunks import ChunkPlan
from transload.manifests.file_checks import LITTER
from transload.shared import limits
from transload.shared.digests import Digest

PAGE = Path(bundle_manifest.__file__).with_name("FORMAT.md").read_text()
MIB = 1024 * 1024


def canonical(value: object) -> bytes:
    """4.1, without the newline."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def header(name: str, size: int, kind: bytes = b"0", mode: bytes = b"0000644\0") -> bytes:
    """2.5."""
    raw_name = name.encode()
    before = b""
    if len(raw_name) > 100:
        long_name = raw_name + b"\0"
        before = header("././@LongLink", len(long_name), b"L", b"0000000\0") + padded(long_name)
    size_field = b"%011o\0" % size if size < 8_589_934_592 else b"\x80" + size.to_bytes(11, "big")
    fields = (
        raw_name[:100].ljust(100, b"\0"), mode, b"0000000\0", b"0000000\0", size_field, b"00000000000\0",
        b" " * 8, kind, bytes(100), b"ustar  \0", bytes(64), bytes(16), bytes(167),
    )  # fmt: skip
    raw = b"".join(fields)
    return before + raw.replace(b" " * 8, b"%06o\0 " % sum(raw), 1)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def graph(document: dict[str, Any], blobs: dict[str, bytes], seen: dict[str, dict[str, Any]], digest: str) -> None:
    """2.2: depth first, each once."""
    if digest in seen:
        return
    seen[digest] = document
    for child in document.get("manifests", []):
        graph(json.loads(blobs[child["digest"]]), blobs, seen, child["digest"])


def is_runnable(manifest: dict[str, Any]) -> bool:
    return manifest["config"]["mediaType"] in (
        "application/vnd.oci.image.config.v1+json",
        "application/vnd.docker.container.image.v1+json",
    ) and not any(layer["mediaType"].startswith("application/vnd.in-toto") for layer in manifest["layers"])


def path_of(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def archive_from_the_page(images: Sequence[tuple[str, str]], blobs: dict[str, bytes]) -> bytes:
    """Section 2.

    Args:
        images: Name without its digest part, and digest, of each.
        blobs: Content by digest.
    """
    index_entries: list[dict[str, Any]] = []
    manifest_entries: list[dict[str, Any]] = []
    doors: dict[str, bytes] = {}
    groups: list[list[str]] = [[], [], []]
    for name, root in images:
        documents: dict[str, dict[str, Any]] = {}
        graph(json.loads(blobs[root]), blobs, documents, root)
        manifests = [document for document in documents.values() if "config" in document]
        groups[0] += documents
        groups[1] += [manifest["config"]["digest"] for manifest in manifests]
        groups[2] += [layer["digest"] for manifest in manifests for layer in manifest["layers"]]
        has_tag = ":" in name.rpartition("/")[2]
        entry = {"mediaType": documents[root]["mediaType"], "digest": root, "size": len(blobs[root])}
        if has_tag:
            entry["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
        runnable = [manifest for manifest in manifests if is_runnable(manifest)]
        if has_tag and runnable and "docker" in documents[root]["mediaType"]:
            door = door_to({digest: one for digest, one in documents.items() if one in runnable}, blobs)
            doors["sha256:" + hashlib.sha256(door).hexdigest()] = door
            index_entries.append({
                "mediaType": "application/vnd.oci.image.index.v1+json", "digest": list(doors)[-1], "size": len(door),
                "annotations": {"org.opencontainers.image.ref.name": name},
            })  # fmt: skip
        index_entries.append(entry)
        ours = [one for one in runnable if machine(one, blobs) == ("linux", "amd64")] or runnable
        if ours:
            manifest_entries.append({
                "Config": path_of(ours[0]["config"]["digest"]),
                "Layers": [path_of(layer["digest"]) for layer in ours[0]["layers"]],
                "RepoTags": [name] if has_tag else None,
            })  # fmt: skip
    order = list(dict.fromkeys(digest for group in groups for digest in group))
    index_json = canonical({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": index_entries,
    })  # fmt: skip
    members: list[tuple[str, bytes]] = [
        ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
        ("index.json", index_json),
        ("manifest.json", canonical(manifest_entries)),
    ]
    archive = b"".join(header(name, len(content)) + padded(content) for name, content in members)
    for folder in ("blobs/", *sorted({f"blobs/{digest.partition(':')[0]}/" for digest in order})):
        archive += header(folder, 0, b"5", b"0000755\0")
    for digest, door in doors.items():
        archive += header(path_of(digest), len(door)) + padded(door)
    for digest in order:
        archive += header(path_of(digest), len(blobs[digest])) + padded(blobs[digest])
    return archive + bytes(1024)


def door_to(manifests: dict[str, dict[str, Any]], blobs: dict[str, bytes]) -> bytes:
    """2.3: an OCI index of these manifests."""
    entries = []
    for digest, manifest in manifests.items():
        config = json.loads(blobs[manifest["config"]["digest"]])
        entries.append({
            "digest": digest, "mediaType": manifest["mediaType"], "size": len(blobs[digest]),
            "platform": {key: config[key] for key in ("os", "architecture", "variant") if config.get(key)},
        })  # fmt: skip
    return canonical({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries,
    })  # fmt: skip


def machine(manifest: dict[str, Any], blobs: dict[str, bytes]) -> tuple[str, str]:
    config = json.loads(blobs[manifest["config"]["digest"]])
    return config["os"], config["architecture"]


def without_tag() -> ImageDouble:
    return image("registry.example/untagged@sha256:" + "0" * 64, [noise_layer("untagged")])


def repeated_layer() -> ImageDouble:
    same = noise_layer("same")
    return image("registry.example/repeated:1", [same, noise_layer("other"), same], docker=True)


def arm_first() -> ImageDouble:
    children = [image("x", [noise_layer("arm")], platform="linux/arm64/v8"), image("x", [noise_layer("amd")])]
    return index("registry.example/arm-first:1", children, attestation=True, docker=True)


@pytest.mark.parametrize(
    "images",
    [
        tiny_images(),
        small_images(),
        [without_tag()],
        [repeated_layer(), arm_first()],
        [image("registry.example/empty:1", [])],
    ],
    ids=["tiny", "small", "without-tag", "repeated-and-index", "no-layers"],
)
def test_an_archive_written_by_the_page_is_the_same_bytes(images: list[ImageDouble]) -> None:
    contents = {digest: raw for double in images for digest, raw in double.blobs.items()}
    ours = archive_bytes(hybrid_archive([double.image for double in images]), contents)
    by_text = {str(digest): raw for digest, raw in contents.items()}
    theirs = archive_from_the_page(
        [(str(double.image.name.with_digest(None)), str(double.image.digest)) for double in images],
        by_text,
    )
    assert ours == theirs


@pytest.mark.parametrize("size", [0, 1, 511, 512, 8_589_934_591, 8_589_934_592, 9 << 30, 1 << 40])
@pytest.mark.parametrize("name", ["blobs/sha256/" + "a" * 64, "blobs/sha512/" + "b" * 128])
def test_headers_of_every_size(name: str, size: int) -> None:
    plan = TarPlan()
    plan.add_blob(name, Digest("sha256", "a" * 64), size)
    assert plan.finish().literals[0].content == header(name, size)


def test_the_example_is_a_bundle_manifest() -> None:
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    raw = canonical(json.loads(example[1])) + b"\n"
    assert bundle_manifest.encode(bundle_manifest.decode(raw)) == raw


def test_canonical_text_is_escaped_as_the_page_says() -> None:
    manifest = BundleDraft(tiny_images()).manifest
    odd = "".join(map(chr, range(0x80))) + "é/\u2028\U0001f600"
    document = json.loads(bundle_manifest.encode(manifest))
    document["tool"] = odd
    raw = canonical(document) + b"\n"
    assert bundle_manifest.decode(raw).tool == odd


@pytest.mark.parametrize("size", [1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 8 * MIB, 8 * MIB + 1, 24 * MIB, 24 * MIB + 5])
@pytest.mark.parametrize("chunk_size", [4 * MIB, 8 * MIB])
def test_chunks_and_blocks_are_counted_as_the_page_says(size: int, chunk_size: int) -> None:
    """Section 3."""
    count = -(-size // chunk_size)
    expected = [chunk_size] * (count - 1) + [size - chunk_size * (count - 1)]
    plan = ChunkPlan("images.tar", size, chunk_size)
    assert [chunk.size for chunk in plan.chunks] == expected
    assert [chunk.name for chunk in plan.chunks] == [f"images.tar.{k:04d}" for k in range(1, count + 1)]
    for offset in (0, size // 2, size - 1):
        assert plan.locate(offset) == (offset // chunk_size, offset % chunk_size)
    assert (plan.blocks_file_name, plan.blocks_file_size_bytes) == ("images.blocks", 32 * -(-size // (4 * MIB)))


def test_the_blocks_file_is_as_the_page_says() -> None:
    draft = BundleDraft(small_images())
    blocks = (draft.archive[start : start + 4 * MIB] for start in range(0, len(draft.archive), 4 * MIB))
    assert draft.files()["images.blocks"] == b"".join(hashlib.sha256(block).digest() for block in blocks)


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_litter_is_the_codes() -> None:
    listed = [line for line in section("8. Files that are not named").splitlines() if line.startswith("`.DS_Store`")]
    assert re.findall(r"`([^`]+)`", listed[0]) == list(LITTER)


def limit_rows() -> Iterator[tuple[str, str]]:
    rows = section("9. Limits").splitlines()
    yield from (
        tuple(cell.strip() for cell in row.strip("|").split("|"))
        for row in rows
        if row.startswith("| ") and "most" not in row
    )  # type: ignore[misc]


def mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB"


def test_the_limits_are_the_codes() -> None:
    said = dict(limit_rows())
    assert said == {
        "SHA256SUMS": mib(limits.MAX_CHECKSUMS_BYTES),
        "a signature file; how many are looked at": f"{limits.MAX_SIGNATURE_BYTES >> 10} KiB; {limits.MAX_SIGNATURES}",
        "bundle.json": (
            f"{mib(limits.MAX_BUNDLE_MANIFEST_BYTES)}; {limits.MAX_BUNDLE_ENTRIES:,} images, and as many blobs"
        ),
        "README.txt": mib(limits.MAX_README_BYTES),
        "a description; all of them; how many": (
            f"{mib(limits.MAX_DESCRIPTION_BYTES)}; {mib(limits.MAX_DESCRIPTIONS_BYTES)}; {limits.MAX_DESCRIPTIONS:,}"
        ),
        "a blocks file": f"{mib(limits.MAX_BLOCKS_FILE_BYTES)} (8 TiB of artifact)",
        "chunks of an artifact": f"{limits.MAX_CHUNKS:,}",
        "entries of the folder": f"{limits.MAX_BUNDLE_DIRECTORY_ENTRIES:,}",
        "a manifest or index; a config": f"{mib(limits.MAX_MANIFEST_BYTES)}; {mib(limits.MAX_CONFIG_BYTES)}",
        "manifests and indexes of all images, each as often as an image needs it": mib(limits.MAX_DOCUMENTS_BYTES),
        "nesting of indexes; manifests below one index; layers of a manifest": (
            f"{limits.MAX_INDEX_DEPTH}; {limits.MAX_INDEX_MANIFESTS:,}; {limits.MAX_LAYERS:,}"
        ),
        "a blob": f"{limits.MAX_BLOB_BYTES >> 40} TiB",
    }
