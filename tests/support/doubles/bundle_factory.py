"""Complete, signed bundles made in pure Python; everything can be changed before the seal, or broken after it.

draft = BundleDraft([image("reg.example/a:1", [noise_layer("base")])])
draft.manifest = msgspec.structs.replace(draft.manifest, sequence=7)     # or draft.archive[5] ^= 1, ...
folder = draft.seal(tmp_path / "bundle", Signer())
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from doubles.image_factory import ImageDouble, image, index, noise_layer
from doubles.signer import Signer
from transload.manifests import bundle_manifest
from transload.manifests.archive_layout import ArchiveLayout, Literal, hybrid_archive
from transload.manifests.bundle_manifest import (
    IMAGES_ARTIFACT,
    ArtifactEntry,
    BlobEntry,
    BundleManifest,
    ChunkEntry,
    FailedEntry,
    ImageEntry,
    blocks_name,
    chunk_name,
)
from transload.shared.digests import Digest
from transload.shared.image import Image
from transload.shared.limits import BLOCK_SIZE_BYTES

EXPORTER = "0123456789abcdef" * 2
CHECKSUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"


@dataclass
class BundleDraft:
    """A bundle before its seal.

    Attributes:
        images: What is in it.
        chunk_size_bytes: A multiple of 4 MiB.
        archive: The bytes of images.tar; change them to make damage that the block digests cover.
        manifest: bundle.json; replace it to make contradictions.
        extra_files: Further files, named in SHA256SUMS.
        unnamed_files: Further files that SHA256SUMS does not name.
    """

    images: Sequence[ImageDouble]
    chunk_size_bytes: int = BLOCK_SIZE_BYTES
    sequence: int = 1
    destination: str = "default"
    exporter: str = EXPORTER
    failed: tuple[FailedEntry, ...] = ()
    extra_files: dict[str, bytes] = field(default_factory=dict)
    unnamed_files: dict[str, bytes] = field(default_factory=dict)
    archive: bytearray = field(init=False)
    manifest: BundleManifest = field(init=False)
    layout: ArchiveLayout = field(init=False)

    def __post_init__(self) -> None:
        images = [double.image for double in self.images]
        contents = {digest: raw for double in self.images for digest, raw in double.blobs.items()}
        self.layout = hybrid_archive(images)
        self.archive = archive_bytes(self.layout, contents)
        self.manifest = BundleManifest(
            bundle_id=f"{self.destination}-{self.sequence:04d}-20240102-{self.exporter[:4]}",
            exporter=self.exporter,
            destination=self.destination,
            sequence=self.sequence,
            previous=None,
            created="2024-01-02T03:04:05Z",
            tool="transload bundle_factory",
            images=tuple(_image_entry(one) for one in images),
            blobs=tuple(
                BlobEntry(
                    digest=str(place.digest), size=place.size_bytes, artifact=IMAGES_ARTIFACT, offset=place.offset
                )
                for place in self.layout.blobs
            ),
            artifacts=(artifact_entry(len(self.archive), self.chunk_size_bytes),),
            failed=self.failed,
        )

    def files(self) -> dict[str, bytes]:
        """Every file but SHA256SUMS and its signature, by name."""
        chunks = {
            chunk_name(IMAGES_ARTIFACT, number): bytes(self.archive[start : start + self.chunk_size_bytes])
            for number, start in enumerate(range(0, len(self.archive), self.chunk_size_bytes), start=1)
        }
        return {
            bundle_manifest.FILE_NAME: bundle_manifest.encode(self.manifest),
            "README.txt": b"How to load this by hand: cat images.tar.* | docker load\n",
            blocks_name(IMAGES_ARTIFACT): block_digests(self.archive),
            **chunks,
            **self.extra_files,
        }

    def seal(self, folder: Path, signer: Signer | None = None, *, namespace: str = "transload-bundle") -> Path:
        """Write the bundle.

        Args:
            folder: Made here.
            signer: Whose key signs; a default one otherwise.
            namespace: For which the signature is.
        """
        files = self.files()
        sums = checksums(files)
        signature = (signer or Signer()).sign(sums, namespace)
        for name, raw in {**files, **self.unnamed_files, CHECKSUMS: sums, SIGNATURE: signature}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
        return folder


def archive_bytes(layout: ArchiveLayout, contents: Mapping[Digest, bytes]) -> bytearray:
    """The bytes of an archive whose layout is known."""
    archive = bytearray(layout.size_bytes)
    for piece in layout.pieces:
        raw = piece.content if isinstance(piece, Literal) else contents[piece.digest]
        archive[piece.offset : piece.offset + len(raw)] = raw
    return archive


def block_digests(archive: bytes | bytearray) -> bytes:
    """The blocks file of an artifact."""
    starts = range(0, len(archive), BLOCK_SIZE_BYTES)
    return b"".join(hashlib.sha256(archive[start : start + BLOCK_SIZE_BYTES]).digest() for start in starts)


def checksums(files: Mapping[str, bytes]) -> bytes:
    """SHA256SUMS over these files."""
    return "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()


def reseal(folder: Path, signer: Signer | None = None) -> None:
    """Make SHA256SUMS and its signature fit whatever the folder holds now: what a malicious signer could do."""
    names = [path for path in folder.rglob("*") if path.is_file() and path.name not in (CHECKSUMS, SIGNATURE)]
    sums = checksums({str(path.relative_to(folder)): path.read_bytes() for path in names})
    (folder / CHECKSUMS).write_bytes(sums)
    (folder / SIGNATURE).write_bytes((signer or Signer()).sign(sums))


def small_images() -> list[ImageDouble]:
    """Three images, one of them a whole index, that share layers: about 13 MB, so four blocks."""
    base = noise_layer("base", 5_000_000)
    first = image("registry.example/team/first:1.0", [base, noise_layer("first", 4_500_000)])
    second = image("registry.example/team/second:2.0", [base, noise_layer("second", 1_500_000, "")], docker=True)
    machines = [
        image("x", [noise_layer("amd64", 600_000)]),
        image("x", [noise_layer("arm64", 400_000)], platform="linux/arm64"),
    ]
    return [first, second, index("registry.example/team/multi:3.0", machines, attestation=True)]


def small_bundle(folder: Path, **changes: object) -> Path:
    """A sealed bundle of `small_images`, several chunks of one block each."""
    return BundleDraft(small_images(), **changes).seal(folder)  # type: ignore[arg-type]


def tiny_images() -> list[ImageDouble]:
    """Two images of a few kilobytes that share a layer: one block."""
    base = noise_layer("tiny-base", 3000)
    return [
        image("registry.example/tiny/one:1", [base, noise_layer("tiny-one", 500)]),
        image("registry.example/tiny/two:1", [base, noise_layer("tiny-two", 700, "zstd")]),
    ]


def write_trust(path: Path, *signers: Signer) -> Path:
    """An allowed_signers file that trusts these signers, or the default one."""
    path.write_text("".join(signer.trust_line() for signer in signers or (Signer(),)))
    return path


def artifact_entry(size_bytes: int, chunk_size_bytes: int) -> ArtifactEntry:
    """images.tar as bundle.json lists it."""
    sizes = [min(chunk_size_bytes, size_bytes - start) for start in range(0, size_bytes, chunk_size_bytes)]
    return ArtifactEntry(
        name=IMAGES_ARTIFACT,
        kind="docker-archive",
        size=size_bytes,
        block_size=4194304,
        blocks=blocks_name(IMAGES_ARTIFACT),
        chunks=tuple(
            ChunkEntry(name=chunk_name(IMAGES_ARTIFACT, number), size=size)
            for number, size in enumerate(sizes, start=1)
        ),
    )


def _image_entry(one: Image) -> ImageEntry:
    return ImageEntry(
        reference=str(one.reference),
        name=str(one.name),
        source_digest=str(one.source_digest),
        digest=str(one.digest),
        media_type=one.root.media_type,
        platform=None if one.platform is None else str(one.platform),
        blobs=tuple(str(descriptor.digest) for descriptor in one.descriptors()),
    )
