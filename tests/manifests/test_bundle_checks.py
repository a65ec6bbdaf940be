"""The pure verifier: every fault of steps 1 to 3, and the order that cannot be left."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from doubles.memory_bundle import (
    EXPORTER,
    NOW,
    SECOND,
    STRANGER,
    TRUST,
    MemoryBundle,
    digest_of,
    signer_line,
)
from transload.manifests.bundle_checks import BundleChecks, SignedBy
from transload.shared import errors
from transload.shared.errors import Faults, TransloadError
from transload.shared.signing.allowed_signers import AllowedSigners
from transload.shared.signing.sshsig import sign


def test_a_valid_bundle_passes() -> None:
    bundle = MemoryBundle()
    checks = bundle.check()
    key = EXPORTER.public_key
    assert checks.signed_by == SignedBy("exporter", key.fingerprint, "ssh-ed25519", "SHA256SUMS.sig")
    assert checks.notes == []
    assert list(checks.check_blocks_file("images.tar")) == [b"\1" * 32] * 2
    with pytest.raises(KeyError):
        checks.check_blocks_file("other.tar")


# --- 1: the signature ---


def test_without_a_signature_nothing_is_looked_at() -> None:
    bundle = MemoryBundle()
    bundle.signatures = {}
    with pytest.raises(errors.SignatureMissing, match=r"SHA256SUMS\.sig"):
        bundle.check()


SIGNATURE_FAULTS: dict[str, tuple[Callable[[MemoryBundle], object], type[TransloadError]]] = {
    "another key": (lambda b: sign(b.sums_raw, STRANGER), errors.SignerUnknown),
    "another namespace": (lambda b: sign(b.sums_raw, EXPORTER, "git"), errors.SignatureInvalid),
    "another file's": (lambda b: sign(b.manifest_raw, EXPORTER), errors.SignatureInvalid),
    "empty": (lambda b: b"", errors.SignatureMalformed),
    "too long": (lambda b: b"x" * 20_000, errors.SignatureMalformed),
}


@pytest.mark.parametrize("case", SIGNATURE_FAULTS)
def test_a_bad_signature_is_refused_and_its_file_named(case: str) -> None:
    make, kind = SIGNATURE_FAULTS[case]
    bundle = MemoryBundle()
    bundle.signatures["SHA256SUMS.sig"] = make(bundle)  # type: ignore[assignment]
    with pytest.raises(kind, match=r"^SHA256SUMS\.sig: ") as caught:
        bundle.check()
    assert caught.value.facts["file"] == "SHA256SUMS.sig"


def test_sums_changed_after_signing_are_refused() -> None:
    bundle = MemoryBundle()
    bundle.sums_raw = bundle.sums_raw.replace(b"1111", b"1112")
    with pytest.raises(errors.SignatureInvalid):
        bundle.check()


def test_the_time_and_the_signer_count() -> None:
    late = signer_line(EXPORTER, "exporter", 'namespaces="transload-bundle",valid-before="20260614Z"')
    with pytest.raises(errors.SignerOutOfTime):
        MemoryBundle().check(AllowedSigners.parse(late.encode(), "x"))
    with pytest.raises(errors.SignerUnknown, match="belongs to exporter"):
        MemoryBundle().check(signer="officer")
    assert MemoryBundle().check(signer="exporter").signed_by is not None


def test_one_valid_signature_is_enough_whatever_lies_beside_it() -> None:
    bundle = MemoryBundle()
    bundle.signatures = {
        "SHA256SUMS.a.sig": b"junk",
        "SHA256SUMS.b.sig": sign(bundle.sums_raw, STRANGER),
        "SHA256SUMS.sig": sign(b"other", EXPORTER),
        "SHA256SUMS.z.sig": sign(bundle.sums_raw, SECOND),
    }
    checks = bundle.check()
    assert checks.signed_by is not None
    assert (checks.signed_by.principal, checks.signed_by.file_name) == ("officer", "SHA256SUMS.z.sig")
    assert [note.split(":")[:2] for note in checks.notes] == [
        ["Does not count", " SHA256SUMS.sig"], ["Does not count", " SHA256SUMS.a.sig"],
        ["Does not count", " SHA256SUMS.b.sig"],
    ]  # fmt: skip
    with pytest.raises(Faults) as caught:
        bundle.check(signer="exporter")
    assert {type(error) for error in caught.value.errors} == {
        errors.SignatureMalformed, errors.SignatureInvalid, errors.SignerUnknown,
    }  # fmt: skip
    assert len(caught.value.errors) == 4


def test_the_signer_asked_for_may_be_the_second() -> None:
    bundle = MemoryBundle()
    bundle.signatures["SHA256SUMS.officer.sig"] = sign(bundle.sums_raw, SECOND)
    both = bundle.check()
    assert both.signed_by is not None
    assert both.signed_by.principal == "exporter"
    assert both.notes == [f"Also signed by officer ({SECOND.public_key.fingerprint}): SHA256SUMS.officer.sig."]
    second = bundle.check(signer="officer").signed_by
    assert second is not None
    assert second.file_name == "SHA256SUMS.officer.sig"


def test_a_heap_of_junk_cannot_push_the_exporters_signature_out() -> None:
    bundle = MemoryBundle()
    bundle.signatures |= {f"SHA256SUMS.{number:02}.sig": b"junk" for number in range(40)}
    checks = bundle.check()
    assert checks.signed_by is not None
    assert checks.signed_by.file_name == "SHA256SUMS.sig"
    assert checks.notes[-1] == "25 further signature files were not looked at."


def test_without_trust_the_look_is_called_unverified() -> None:
    bundle = MemoryBundle()
    checks = BundleChecks(None, at=NOW)
    assert checks.check_signature(bundle.sums_raw, {}) is None
    assert checks.notes[0].startswith("Unverified")
    checks.check_checksums()
    assert checks.check_manifest(bundle.manifest_raw) == bundle.manifest


# --- 2 and 3: SHA256SUMS, bundle.json ---


def test_signed_nonsense_is_refused() -> None:
    bundle = MemoryBundle()
    bundle.sums_raw = b"nonsense\n"
    bundle.signatures = {"SHA256SUMS.sig": sign(bundle.sums_raw, EXPORTER)}
    with pytest.raises(errors.MalformedBundle, match="SHA256SUMS, line 1"):
        bundle.check()


def test_a_manifest_is_compared_before_it_is_parsed() -> None:
    bundle = MemoryBundle()
    bundle.manifest_raw = b"{"
    with pytest.raises(errors.BundleFileDamaged, match=r"bundle\.json does not have its digest"):
        bundle.check()


def test_a_manifest_that_nobody_named_is_refused() -> None:
    bundle = MemoryBundle()
    del bundle.sums["bundle.json"]
    bundle.seal()
    with pytest.raises(errors.MalformedBundle, match=r"does not name bundle\.json"):
        bundle.check()


def test_a_later_format_is_said_to_be_one() -> None:
    bundle = MemoryBundle()
    bundle.manifest_raw = bundle.manifest_raw.replace(b'"version":1', b'"version":2')
    bundle.sums["bundle.json"] = digest_of(bundle.manifest_raw)
    bundle.seal()
    with pytest.raises(errors.UnsupportedVersion):
        bundle.check()


def test_what_was_verified_is_what_is_handed_out() -> None:
    """The block digests come from the bytes that step 4 compared, whatever the caller does with its own later."""
    bundle = MemoryBundle()
    checks = bundle.check()
    bundle.small_files["images.blocks"] = b"\7" * 64
    assert checks.check_blocks_file("images.tar")[0] == b"\1" * 32
    unverified = BundleChecks(None, at=NOW)
    unverified.check_signature(bundle.sums_raw, {})
    sums: Any = unverified.check_checksums()
    with pytest.raises(TypeError):
        sums["evil"] = "0" * 64


# --- the order ---


def _steps(bundle: MemoryBundle, checks: BundleChecks) -> Iterator[Callable[[], object]]:
    yield lambda: checks.check_signature(bundle.sums_raw, bundle.signatures)
    yield checks.check_checksums
    yield lambda: checks.check_manifest(bundle.manifest_raw)
    yield lambda: checks.check_files(bundle.found, bundle.small_files)
    yield lambda: checks.check_blocks_file("images.tar")


@pytest.mark.parametrize("done", range(5))
@pytest.mark.parametrize("wrong", range(5))
def test_no_step_can_be_skipped_or_taken_twice(done: int, wrong: int) -> None:
    checks = BundleChecks(TRUST, at=NOW)
    steps = list(_steps(MemoryBundle(), checks))
    for step in steps[:done]:
        step()
    if wrong == done:
        steps[wrong]()
    else:
        with pytest.raises(RuntimeError, match="out of order"):
            steps[wrong]()


@pytest.mark.parametrize("failing", range(4))
def test_after_a_fault_no_step_can_be_taken(failing: int) -> None:
    bundle = MemoryBundle()
    if failing == 0:
        bundle.signatures = {"SHA256SUMS.sig": b""}
    elif failing == 1:
        bundle.sums_raw = b"x\n"
        bundle.signatures = {"SHA256SUMS.sig": sign(b"x\n", EXPORTER)}
    elif failing == 2:
        bundle.manifest_raw = b"{}"
    else:
        bundle.found["stray"] = 1
    checks = BundleChecks(TRUST, at=NOW)
    steps = list(_steps(bundle, checks))
    for step in steps[:failing]:
        step()
    with pytest.raises(TransloadError):
        steps[failing]()
    for step in steps:
        with pytest.raises(RuntimeError, match="a step failed"):
            step()


def test_bits_of_the_signed_documents_all_count() -> None:
    """Every bit of SHA256SUMS and a bit of every byte of bundle.json."""
    bundle = MemoryBundle()
    sums, manifest = bundle.sums_raw, bundle.manifest_raw
    for position in range(len(sums) * 8):
        flipped = bytearray(sums)
        flipped[position // 8] ^= 1 << position % 8
        bundle.sums_raw = bytes(flipped)
        with pytest.raises(errors.SignatureInvalid):
            bundle.check()
    bundle.sums_raw = sums
    for position in range(len(manifest)):
        flipped = bytearray(manifest)
        flipped[position] ^= 1 << position % 8
        bundle.manifest_raw = bytes(flipped)
        with pytest.raises(errors.BundleFileDamaged):
            bundle.check()
