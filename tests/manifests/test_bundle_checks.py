"""The pure verifier: every fault of every step, the order that cannot be left, and which fault wins."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pytest
from msgspec.structs import replace
from transload.manifests import bundle_manifest, checksums_file
from transload.manifests.bundle_checks import BundleChecks, SignedBy
from transload.manifests.bundle_manifest import ArtifactEntry, BlobEntry, BundleManifest, ChunkEntry, ImageEntry
from transload.manifests.file_checks import is_litter
from transload.shared import errors
from transload.shared.errors import Faults, TransloadError
from transload.shared.signing.allowed_signers import AllowedSigners
from transload.shared.signing.ssh_keys import SigningKey
from transload.shared.signing.sshsig import sign

NOW = datetime(2026, 6, 15, 12, 0, 0, tzinfo=timezone.utc)
BLOCK = 4_194_304
SIZE = BLOCK + 1000
DIGEST = f"sha256:{'a' * 64}"
EXPORTER, STRANGER, SECOND = (SigningKey.generate() for _ in range(3))


def _manifest() -> BundleManifest:
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


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Bundle:
    """A small bundle in memory: valid, until a test breaks one thing."""

    manifest: BundleManifest = field(default_factory=_manifest)
    readme: bytes = b"by hand\n"
    blocks: bytes = b"\1" * 64
    signer: SigningKey = EXPORTER
    sums: dict[str, str] = field(init=False)
    found: dict[str, int] = field(init=False)
    signatures: dict[str, bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.manifest_raw = bundle_manifest.encode(self.manifest)
        self.sums = {
            "bundle.json": _digest(self.manifest_raw),
            "README.txt": _digest(self.readme),
            "images.blocks": _digest(self.blocks),
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
        self.sums_raw = checksums_file.encode(self.sums)
        self.signatures = {"SHA256SUMS.sig": sign(self.sums_raw, self.signer)}

    def check(self, trust: AllowedSigners | None = None, *, signer: str | None = None) -> BundleChecks:
        checks = BundleChecks(trust or TRUST, at=NOW, signer=signer)
        checks.check_signature(self.sums_raw, self.signatures)
        checks.check_checksums()
        checks.check_manifest(self.manifest_raw)
        checks.check_files(self.found, self.small_files)
        return checks


def _line(key: SigningKey, principal: str, options: str = 'namespaces="transload-bundle"') -> str:
    return f"{principal} {options} {key.public_key.line()}\n"


TRUST = AllowedSigners.parse((_line(EXPORTER, "exporter") + _line(SECOND, "officer")).encode(), "allowed_signers")


def test_a_valid_bundle_passes() -> None:
    bundle = Bundle()
    checks = bundle.check()
    key = EXPORTER.public_key
    assert checks.signed_by == SignedBy("exporter", key.fingerprint, "ssh-ed25519", "SHA256SUMS.sig")
    assert checks.notes == []
    assert list(checks.check_blocks_file("images.tar")) == [b"\1" * 32] * 2
    with pytest.raises(KeyError):
        checks.check_blocks_file("other.tar")


# --- 1: the signature ---


def test_without_a_signature_nothing_is_looked_at() -> None:
    bundle = Bundle()
    bundle.signatures = {}
    with pytest.raises(errors.SignatureMissing, match=r"SHA256SUMS\.sig"):
        bundle.check()


SIGNATURE_FAULTS: dict[str, tuple[Callable[[Bundle], object], type[TransloadError]]] = {
    "another key": (lambda b: sign(b.sums_raw, STRANGER), errors.SignerUnknown),
    "another namespace": (lambda b: sign(b.sums_raw, EXPORTER, "git"), errors.SignatureInvalid),
    "another file's": (lambda b: sign(b.manifest_raw, EXPORTER), errors.SignatureInvalid),
    "empty": (lambda b: b"", errors.SignatureMalformed),
    "too long": (lambda b: b"x" * 20_000, errors.SignatureMalformed),
}


@pytest.mark.parametrize("case", SIGNATURE_FAULTS)
def test_a_bad_signature_is_refused_and_its_file_named(case: str) -> None:
    make, kind = SIGNATURE_FAULTS[case]
    bundle = Bundle()
    bundle.signatures["SHA256SUMS.sig"] = make(bundle)  # type: ignore[assignment]
    with pytest.raises(kind, match=r"^SHA256SUMS\.sig: ") as caught:
        bundle.check()
    assert caught.value.facts["file"] == "SHA256SUMS.sig"


def test_sums_changed_after_signing_are_refused() -> None:
    bundle = Bundle()
    bundle.sums_raw = bundle.sums_raw.replace(b"1111", b"1112")
    with pytest.raises(errors.SignatureInvalid):
        bundle.check()


def test_the_time_and_the_signer_count() -> None:
    late = _line(EXPORTER, "exporter", 'namespaces="transload-bundle",valid-before="20260614Z"')
    with pytest.raises(errors.SignerOutOfTime):
        Bundle().check(AllowedSigners.parse(late.encode(), "x"))
    with pytest.raises(errors.SignerUnknown, match="belongs to exporter"):
        Bundle().check(signer="officer")
    assert Bundle().check(signer="exporter").signed_by is not None


def test_one_valid_signature_is_enough_whatever_lies_beside_it() -> None:
    bundle = Bundle()
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
    bundle = Bundle()
    bundle.signatures["SHA256SUMS.officer.sig"] = sign(bundle.sums_raw, SECOND)
    both = bundle.check()
    assert both.signed_by is not None
    assert both.signed_by.principal == "exporter"
    assert both.notes == [f"Also signed by officer ({SECOND.public_key.fingerprint}): SHA256SUMS.officer.sig."]
    second = bundle.check(signer="officer").signed_by
    assert second is not None
    assert second.file_name == "SHA256SUMS.officer.sig"


def test_a_heap_of_junk_cannot_push_the_exporters_signature_out() -> None:
    bundle = Bundle()
    bundle.signatures |= {f"SHA256SUMS.{number:02}.sig": b"junk" for number in range(40)}
    checks = bundle.check()
    assert checks.signed_by is not None
    assert checks.signed_by.file_name == "SHA256SUMS.sig"
    assert checks.notes[-1] == "25 further signature files were not looked at."


def test_without_trust_the_look_is_called_unverified() -> None:
    bundle = Bundle()
    checks = BundleChecks(None, at=NOW)
    assert checks.check_signature(bundle.sums_raw, {}) is None
    assert checks.notes[0].startswith("Unverified")
    checks.check_checksums()
    assert checks.check_manifest(bundle.manifest_raw) == bundle.manifest


# --- 2 and 3: SHA256SUMS, bundle.json ---


def test_signed_nonsense_is_refused() -> None:
    bundle = Bundle()
    bundle.sums_raw = b"nonsense\n"
    bundle.signatures = {"SHA256SUMS.sig": sign(bundle.sums_raw, EXPORTER)}
    with pytest.raises(errors.MalformedBundle, match="SHA256SUMS, line 1"):
        bundle.check()


def test_a_manifest_is_compared_before_it_is_parsed() -> None:
    bundle = Bundle()
    bundle.manifest_raw = b"{"
    with pytest.raises(errors.BundleFileDamaged, match=r"bundle\.json does not have its digest"):
        bundle.check()


def test_a_manifest_that_nobody_named_is_refused() -> None:
    bundle = Bundle()
    del bundle.sums["bundle.json"]
    bundle.seal()
    with pytest.raises(errors.MalformedBundle, match=r"does not name bundle\.json"):
        bundle.check()


def test_a_later_format_is_said_to_be_one() -> None:
    bundle = Bundle()
    bundle.manifest_raw = bundle.manifest_raw.replace(b'"version":1', b'"version":2')
    bundle.sums["bundle.json"] = _digest(bundle.manifest_raw)
    bundle.seal()
    with pytest.raises(errors.UnsupportedVersion):
        bundle.check()


# --- 4: the files ---


def _set(bundle: Bundle, name: str, size: int) -> None:
    bundle.found[name] = size


def _damage(bundle: Bundle, name: str) -> None:
    bundle.small_files[name] = bytes(len(bundle.small_files[name]))


def _resum(bundle: Bundle, **changes: str) -> None:
    bundle.sums.update({name.replace("__", "."): digest for name, digest in changes.items()})
    bundle.seal()


def _unsum(bundle: Bundle, name: str) -> None:
    del bundle.sums[name]
    bundle.seal()


FILE_FAULTS: dict[str, tuple[Callable[[Bundle], object], type[TransloadError], str]] = {
    "chunk missing": (lambda b: b.found.pop("images.tar.0002"), errors.BundleFileMissing, "images.tar.0002 is missing"),
    "readme missing": (lambda b: b.found.pop("README.txt"), errors.BundleFileMissing, "README.txt is missing"),
    "blocks missing": (lambda b: b.found.pop("images.blocks"), errors.BundleFileMissing, "images.blocks is missing"),
    "chunk short": (lambda b: _set(b, "images.tar.0001", BLOCK - 1), errors.BundleFileWrongSize, "images.tar.0001 has"),
    "chunk long": (lambda b: _set(b, "images.tar.0002", 1001), errors.BundleFileWrongSize, "1,001 bytes; 1,000 were"),
    "chunk empty": (lambda b: _set(b, "images.tar.0002", 0), errors.BundleFileWrongSize, "images.tar.0002 has 0"),
    "blocks short": (lambda b: _set(b, "images.blocks", 32), errors.BundleFileWrongSize, "has 32 bytes; 64"),
    "readme huge": (lambda b: _set(b, "README.txt", 1 << 30), errors.BundleFileWrongSize, "has 1,073,741,824"),
    "readme damaged": (lambda b: _damage(b, "README.txt"), errors.BundleFileDamaged, "README.txt does"),
    "blocks damaged": (lambda b: _damage(b, "images.blocks"), errors.BundleFileDamaged, "images.blocks does"),
    "stray file": (lambda b: _set(b, "virus.exe", 5), errors.UnnamedFile, "virus.exe lies in"),
    "stray chunk": (lambda b: _set(b, "images.tar.0003", 5), errors.UnnamedFile, "images.tar.0003 lies in"),
    "stray folder": (lambda b: _set(b, "folder/", 0), errors.UnnamedFile, "folder/ lies in"),
    "file in a folder": (lambda b: _set(b, "sif/a", 0), errors.UnnamedFile, "sif/a lies in"),
    "name with an escape": (lambda b: _set(b, "a\x1b[2J", 0), errors.UnnamedFile, r"a\\x1b\[2J lies in"),
    "bad signature name": (lambda b: _set(b, "SHA256SUMS.a.b.sig", 0), errors.UnnamedFile, "SHA256SUMS.a.b.sig lies"),
    "extra name in sums": (lambda b: _resum(b, extra__txt="3" * 64), errors.MalformedBundle, "names extra.txt, which"),
    "chunk not in sums": (lambda b: _unsum(b, "images.tar.0002"), errors.MalformedBundle, "not name images.tar.0002"),
    "readme not in sums": (lambda b: _unsum(b, "README.txt"), errors.MalformedBundle, "does not name README.txt"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILE_FAULTS)
def test_one_fault_of_the_files_is_that_one_error(case: str) -> None:
    change, kind, words = FILE_FAULTS[case]
    bundle = Bundle()
    change(bundle)
    with pytest.raises(kind, match=words):
        bundle.check()


def test_names_that_differ_in_case_alone_are_refused() -> None:
    bundle = Bundle()
    _resum(bundle, readme__TXT="3" * 64)
    with pytest.raises(Faults, match=r"README\.txt and readme\.TXT differ in case alone"):
        bundle.check()


def test_a_name_in_other_case_gets_a_hint() -> None:
    bundle = Bundle()
    bundle.found["readme.txt"] = bundle.found.pop("README.txt")
    with pytest.raises(Faults) as caught:
        bundle.check()
    missing, unnamed = caught.value.errors
    assert isinstance(missing, errors.BundleFileMissing)
    assert "readme.txt is there: rename it" in missing.hint
    assert isinstance(unnamed, errors.UnnamedFile)


def test_all_faults_of_the_files_come_together_and_integrity_outranks_format() -> None:
    bundle = Bundle()
    bundle.found |= {"stray": 1, "images.tar.0001": 7}
    del bundle.found["images.tar.0002"]
    bundle.small_files["README.txt"] = b"x"
    with pytest.raises(Faults) as caught:
        bundle.check()
    assert [type(error) for error in caught.value.errors] == [
        errors.BundleFileWrongSize, errors.BundleFileMissing, errors.BundleFileDamaged, errors.UnnamedFile,
    ]  # fmt: skip
    assert caught.value.exit_code == errors.BundleFileWrongSize.exit_code


LITTER = [".DS_Store", "._images.tar.0001", "Thumbs.db", "THUMBS.DB", "desktop.ini", "System Volume Information",
          "System Volume Information/IndexerVolumeGuid", "$RECYCLE.BIN/x", "lost+found/", ".Trashes", ".Trash-1000",
          ".fseventsd", ".Spotlight-V100/Store-V2/"]  # fmt: skip


def test_what_operating_systems_leave_is_noted_and_no_fault() -> None:
    bundle = Bundle()
    bundle.found |= dict.fromkeys(LITTER, 1)
    checks = bundle.check()
    assert len(checks.notes) == len(LITTER)
    assert all(note.startswith("Left alone: ") for note in checks.notes)


@pytest.mark.parametrize("name", ["DS_Store", "x.DS_Store", ".bashrc", "Thumbs.db.exe", "lost+found2", ".", "a/b"])
def test_what_only_looks_like_litter_is_none(name: str) -> None:
    assert not is_litter(name)


def test_further_signature_files_are_no_strangers() -> None:
    bundle = Bundle()
    bundle.found |= {"SHA256SUMS.sig": 1, "SHA256SUMS.officer.sig": 1}
    assert bundle.check().notes == []


def test_a_small_file_that_was_not_handed_in_is_a_bug() -> None:
    bundle = Bundle()
    del bundle.small_files["README.txt"]
    with pytest.raises(RuntimeError, match=r"README\.txt"):
        bundle.check()


def test_what_was_verified_is_what_is_handed_out() -> None:
    """The block digests come from the bytes that step 4 compared, whatever the caller does with its own later."""
    bundle = Bundle()
    checks = bundle.check()
    bundle.small_files["images.blocks"] = b"\7" * 64
    assert checks.check_blocks_file("images.tar")[0] == b"\1" * 32
    unverified = BundleChecks(None, at=NOW)
    unverified.check_signature(bundle.sums_raw, {})
    sums: Any = unverified.check_checksums()
    with pytest.raises(TypeError):
        sums["evil"] = "0" * 64


# --- the order ---


def _steps(bundle: Bundle, checks: BundleChecks) -> Iterator[Callable[[], object]]:
    yield lambda: checks.check_signature(bundle.sums_raw, bundle.signatures)
    yield checks.check_checksums
    yield lambda: checks.check_manifest(bundle.manifest_raw)
    yield lambda: checks.check_files(bundle.found, bundle.small_files)
    yield lambda: checks.check_blocks_file("images.tar")


@pytest.mark.parametrize("done", range(5))
@pytest.mark.parametrize("wrong", range(5))
def test_no_step_can_be_skipped_or_taken_twice(done: int, wrong: int) -> None:
    checks = BundleChecks(TRUST, at=NOW)
    steps = list(_steps(Bundle(), checks))
    for step in steps[:done]:
        step()
    if wrong == done:
        steps[wrong]()
    else:
        with pytest.raises(RuntimeError, match="out of order"):
            steps[wrong]()


@pytest.mark.parametrize("failing", range(4))
def test_after_a_fault_no_step_can_be_taken(failing: int) -> None:
    bundle = Bundle()
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
    bundle = Bundle()
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


def test_a_manifest_that_names_other_chunks_is_held_against_the_sums() -> None:
    artifact = replace(_manifest().artifacts[0], size=BLOCK, chunks=_manifest().artifacts[0].chunks[:1])
    bundle = Bundle(manifest=replace(_manifest(), artifacts=(artifact,)))
    with pytest.raises(Faults) as caught:
        bundle.check()
    kinds = {type(error) for error in caught.value.errors}
    assert kinds == {errors.MalformedBundle, errors.BundleFileWrongSize, errors.UnnamedFile}
