"""A bundle of version 1, kept for ever: today's exporter makes the same bytes, and every later importer reads it."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from pathlib import Path

from doubles import golden
from doubles.scripted_registry import scripted_registry
from transload.import_side.verified_bundle import VerifiedBundle
from transload.shared.limits import MAX_BLOB_BYTES
from transload.shared.signing.allowed_signers import AllowedSigners

HERE = Path(__file__).parent
BUNDLE = HERE / "version-1"
AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def test_the_exporter_makes_the_golden_bundle_byte_for_byte(tmp_path: Path) -> None:
    """Out of the blobs of the kept bundle; `make_golden.py` says what may ever change."""
    with scripted_registry() as source:
        manifest = golden.fill_from_bundle(source, BUNDLE)
        made = golden.export(source, tmp_path / "output", golden.oci_digest(manifest))
    assert made.name == manifest.bundle_id
    assert {path.name for path in made.iterdir()} == {path.name for path in BUNDLE.iterdir()}
    differing = [path.name for path in BUNDLE.iterdir() if path.read_bytes() != (made / path.name).read_bytes()]
    assert differing == []


def test_the_importer_reads_the_golden_bundle() -> None:
    trust = AllowedSigners.load(HERE / "allowed_signers")
    bundle = VerifiedBundle.open(BUNDLE, trust=trust, at=AT, signer=None)
    assert bundle.signed_by is not None
    assert bundle.signed_by.fingerprint == golden.SIGNER.fingerprint
    images = list(bundle.images())
    assert [str(image.name) for image in images] == [entry.name for entry in bundle.manifest.images]
    for image in images:
        for descriptor in image.descriptors():
            raw = b"".join(bytes(piece) for piece in bundle.open_blob(descriptor))
            assert len(raw) <= MAX_BLOB_BYTES
            assert descriptor.digest.matches(raw)


def test_the_golden_bundle_is_what_it_always_was() -> None:
    """The checked-in files themselves: an editor or a checkout that changes line ends would show here."""
    sums = (BUNDLE / "SHA256SUMS").read_text().splitlines()
    for line in sums:
        digest, _, name = line.partition("  ")
        assert hashlib.sha256((BUNDLE / name).read_bytes()).hexdigest() == digest
