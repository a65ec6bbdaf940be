"""The documents of a bundle in memory, for the pure checks: no archive, no file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timezone

from transload.manifests import bundle_manifest, checksums_file
from transload.manifests.bundle_checks import BundleChecks
from transload.manifests.bundle_manifest import ArtifactEntry, BlobEntry, BundleManifest, ChunkEntry, ImageEntry
from transload.shared.signing.allowed_signers import AllowedSigners
from transload.shared.signing.ssh_keys import SigningKey
from transload.shared.signing.sshsig import sign

NOW = datetime(2026, 6, 15, 12, 0, 0, tzinfo=timezone.utc)
BLOCK = 4_194_304
SIZE = BLOCK + 1000
DIGEST = f"sha256:{'a' * 64}"
EXPORTER, STRANGER, SECOND = (SigningKey.generate() for _ in range(3))
"""The exporter and a second signer are trusted; the stranger is not."""


def small_manifest() -> BundleManifest:
    """One image of one blob, in two chunks."""
    return BundleManifest(
        bundle_id="default-0001-20260615-0123", exporter="0123456789abcdef" * 2, destination="default", sequence=1,
        previous=None, created="2026-06-15T12:00:00Z", tool="transload",
        images=(
            ImageEntry(
                reference="reg.example/a:1", name="reg.example/a:1", source_digest=DIGEST, digest=DIGEST,
                media_type="application/vnd.oci.image.manifest.v1+json", platform="linux/amd64", blobs=(DIGEST,),
            ),
        ),
        blobs=(BlobEntry(digest=DIGEST, size=100, artifact="images.tar", offset=512),),
        artifacts=(
            ArtifactEntry(
                name="images.tar", kind="docker-archive", size=SIZE, block_size=4194304, blocks="images.blocks",
                chunks=(ChunkEntry(name="images.tar.0001", size=BLOCK), ChunkEntry(name="images.tar.0002", size=1000)),
            ),
        ),
        failed=(),
    )  # fmt: skip


def digest_of(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@dataclass
class MemoryBundle:
    """A small bundle in memory: valid, until a test breaks one thing.

    Attributes:
        manifest: bundle.json, parsed; `manifest_raw` is what is handed to the checks.
        sums: Content of SHA256SUMS; `seal` after changing it.
        found: What lies in the folder.
        small_files: Content of the files that are read whole.
        signatures: Content of the signature files.
    """

    manifest: BundleManifest = field(default_factory=small_manifest)
    readme: bytes = b"by hand\n"
    blocks: bytes = b"\1" * 64
    signer: SigningKey = EXPORTER
    sums: dict[str, str] = field(init=False)
    found: dict[str, int] = field(init=False)
    signatures: dict[str, bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.manifest_raw = bundle_manifest.encode(self.manifest)
        self.sums = {
            "bundle.json": digest_of(self.manifest_raw),
            "README.txt": digest_of(self.readme),
            "images.blocks": digest_of(self.blocks),
            "images.tar.0001": "1" * 64,
            "images.tar.0002": "2" * 64,
        }
        self.found = {
            "SHA256SUMS": 1, "bundle.json": len(self.manifest_raw), "README.txt": len(self.readme),
            "images.blocks": 64, "images.tar.0001": BLOCK, "images.tar.0002": 1000,
        }  # fmt: skip
        self.small_files = {"README.txt": self.readme, "images.blocks": self.blocks}
        self.seal()

    def seal(self) -> None:
        """Write SHA256SUMS anew and sign it."""
        self.sums_raw = checksums_file.encode(self.sums)
        self.signatures = {"SHA256SUMS.sig": sign(self.sums_raw, self.signer)}

    def check(self, trust: AllowedSigners | None = None, *, signer: str | None = None) -> BundleChecks:
        """Take steps 1 to 4."""
        checks = BundleChecks(trust or TRUST, at=NOW, signer=signer)
        checks.check_signature(self.sums_raw, self.signatures)
        checks.check_checksums()
        checks.check_manifest(self.manifest_raw)
        checks.check_files(self.found, self.small_files)
        return checks


def signer_line(key: SigningKey, principal: str, options: str = 'namespaces="transload-bundle"') -> str:
    """A line of allowed_signers."""
    return f"{principal} {options} {key.public_key.line()}\n"


TRUST = AllowedSigners.parse(
    (signer_line(EXPORTER, "exporter") + signer_line(SECOND, "officer")).encode(), "allowed_signers"
)
