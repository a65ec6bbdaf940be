"""The pure verifier of a bundle: checks in a fixed order that cannot be left (FORMAT.md, "Order of checks").

No file is opened here. Its user reads bytes and hands them in; each step uses only what the steps before have verified,
and what was verified is what is parsed and handed out:

    1. `check_signature`    the signature over SHA256SUMS, by a key of the trust file
    2. `check_checksums`    SHA256SUMS is of its one form
    3. `check_manifest`     bundle.json has its digest in SHA256SUMS, and only then is parsed
    4. `check_files`        names and sizes of all files, digests of the small ones
    5. `check_blocks_file`  the block digests, which every block is compared with before its bytes are used

A step raises all its faults together; after a fault no later step can be reached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from transload.manifests import bundle_manifest, checksums_file
from transload.manifests.block_digests import BlockDigests
from transload.manifests.bundle_manifest import BundleManifest
from transload.manifests.file_checks import COPY_AGAIN, README_NAME, FileChecks
from transload.shared import limits
from transload.shared.errors import (
    BundleFileDamaged,
    MalformedBundle,
    SignatureMissing,
    TransloadError,
    raise_all,
)
from transload.shared.signing.allowed_signers import AllowedSigners
from transload.shared.signing.sshsig import NAMESPACE, SshSignature

__all__ = ["README_NAME", "BundleChecks", "SignedBy"]

_FAILED = -1


@dataclass(frozen=True, slots=True)
class SignedBy:
    """Whose signature a bundle was accepted for.

    Args:
        principal: The name in the trust file.
        fingerprint: Of the key, `SHA256:...`.
        key_type: Of the key, such as `ssh-ed25519`.
        file_name: The signature file.
    """

    principal: str
    fingerprint: str
    key_type: str
    file_name: str


class BundleChecks:
    """Checks one bundle, step by step.

    Args:
        trust: Who may sign; None for an unverified look, whose result must be called so.
        at: The time at which the signer's key must be valid; aware.
        signer: The principal that must have signed, or None for anyone in `trust`.

    Attributes:
        notes: What a person should hear although it is no fault: signature files that do not count, litter.
        signed_by: After step 1, whose signature counted.
    """

    def __init__(self, trust: AllowedSigners | None, *, at: datetime, signer: str | None = None) -> None:
        self.notes: list[str] = []
        self.signed_by: SignedBy | None = None
        self._trust, self._at, self._signer = trust, at, signer
        self._step = 0
        self._checksums_raw = b""
        self._checksums: Mapping[str, str] = {}
        self._manifest: BundleManifest | None = None
        self._blocks_files: Mapping[str, bytes] = {}

    def check_signature(self, checksums_raw: bytes, signatures: Mapping[str, bytes]) -> SignedBy | None:
        """Step 1: one valid signature by a trusted key is enough; the others are named in `notes`.

        Args:
            checksums_raw: The content of SHA256SUMS.
            signatures: Name and content of every signature file.

        Returns:
            Who signed, or None for an unverified look.

        Raises:
            SignatureMissing: There is no signature file.
            SignatureMalformed, SignatureInvalid, SignerUnknown, SignerOutOfTime, KeyTypeUnsupported: None counts;
                with several files, `Faults` of what is wrong with each.
        """
        self._begin(1)
        if self._trust is None:
            self.notes.append("Unverified: nobody checked who made this bundle (no trust file was given).")
        else:
            self.signed_by = self._find_signer(self._trust, checksums_raw, signatures)
        self._checksums_raw = checksums_raw
        self._done(1)
        return self.signed_by

    def _find_signer(self, trust: AllowedSigners, message: bytes, signatures: Mapping[str, bytes]) -> SignedBy:
        if not signatures:
            raise SignatureMissing(
                f"The bundle has no signature file ({checksums_file.FILE_NAME}{checksums_file.SIGNATURE_SUFFIX}).",
                hint="Nothing may be taken from it. Copy the signature from where the bundle was exported.",
                file=checksums_file.FILE_NAME + checksums_file.SIGNATURE_SUFFIX,
            )
        # The exporter's own first: junk beside it cannot push it out of the number that is looked at.
        names = sorted(signatures, key=lambda name: (name.count("."), name))
        verdicts = [self._judge(name, signatures[name], message, trust) for name in names[: limits.MAX_SIGNATURES]]
        signers = [verdict for verdict in verdicts if isinstance(verdict, SignedBy)]
        faults = [verdict for verdict in verdicts if isinstance(verdict, TransloadError)]
        if not signers:
            raise_all(faults)
        for further in signers[1:]:
            self.notes.append(f"Also signed by {further.principal} ({further.fingerprint}): {further.file_name}.")
        self.notes.extend(f"Does not count: {fault.message}" for fault in faults)
        if ignored := names[limits.MAX_SIGNATURES :]:
            self.notes.append(f"{len(ignored)} further signature files were not looked at.")
        return signers[0]

    def _judge(self, name: str, raw: bytes, message: bytes, trust: AllowedSigners) -> SignedBy | TransloadError:
        try:
            signature = SshSignature.parse(raw)
            signature.verify(message, NAMESPACE)
            key = signature.public_key
            principal = trust.admit(key, namespace=NAMESPACE, at=self._at, signer=self._signer)
        except TransloadError as error:
            return type(error)(f"{name}: {error.message}", hint=error.hint, **{**error.facts, "file": name})
        return SignedBy(principal, key.fingerprint, key.key_type, name)

    def check_checksums(self) -> Mapping[str, str]:
        """Step 2: SHA256SUMS is of its one form.

        Returns:
            File name to SHA-256 in hexadecimal.

        Raises:
            MalformedBundle: It is not.
        """
        self._begin(2)
        self._checksums = MappingProxyType(checksums_file.decode(self._checksums_raw))
        self._done(2)
        return self._checksums

    def check_manifest(self, manifest_raw: bytes) -> BundleManifest:
        """Step 3: bundle.json has its digest, and only then is parsed.

        Args:
            manifest_raw: Its content.

        Raises:
            BundleFileDamaged: It does not have the digest that SHA256SUMS names.
            UnsupportedVersion: It is of a later format.
            MalformedBundle: It is not named in SHA256SUMS, or breaks the format.
        """
        self._begin(3)
        name = bundle_manifest.FILE_NAME
        expected = self._checksums.get(name)
        if expected is None:
            raise MalformedBundle(f"{checksums_file.FILE_NAME} does not name {name}.", file=checksums_file.FILE_NAME)
        if (found := hashlib.sha256(manifest_raw).hexdigest()) != expected:
            raise BundleFileDamaged(
                f"{name} does not have its digest: expected {expected}, found {found}.",
                hint=COPY_AGAIN, file=name, expected=expected, found=found,
            )  # fmt: skip
        if len(manifest_raw) > limits.MAX_BUNDLE_MANIFEST_BYTES:
            raise MalformedBundle(
                f"{name} has {len(manifest_raw):,} bytes; at most {limits.MAX_BUNDLE_MANIFEST_BYTES:,} are accepted."
            )
        self._manifest = bundle_manifest.decode(manifest_raw)
        self._done(3)
        return self._manifest

    def check_files(self, found: Mapping[str, int], small_files: Mapping[str, bytes]) -> None:
        """Step 4: every file is there with its size and none besides; the small files have their digests.

        Whether exporter, destination and sequence are acceptable is asked after this: see `import_side.acceptance`.

        Args:
            found: Name and size in bytes of every file in the bundle's folder; signature files may be left out.
            small_files: Content of README.txt, every blocks file and every description that was found.

        Raises:
            BundleFileMissing, BundleFileWrongSize, BundleFileDamaged, UnnamedFile, MalformedBundle: With several
                faults, `Faults` of all of them.
            RuntimeError: A small file was found and not handed in.
        """
        self._begin(4)
        manifest = self._verified_manifest
        checks = FileChecks(self._checksums, manifest)
        raise_all(checks.faults(found, small_files))
        self.notes.extend(checks.notes)
        self._blocks_files = {artifact.name: small_files[artifact.blocks] for artifact in manifest.artifacts}
        self._done(4)

    def check_blocks_file(self, artifact_name: str) -> BlockDigests:
        """Step 5: the digests that every block is compared with before its bytes are used.

        Args:
            artifact_name: Such as `images.tar`.

        Raises:
            BundleFileWrongSize: The blocks file has another length than the artifact needs.
            KeyError: bundle.json has no such artifact.
        """
        self._require(4)
        artifact = next((entry for entry in self._verified_manifest.artifacts if entry.name == artifact_name), None)
        if artifact is None:
            raise KeyError(artifact_name)
        return BlockDigests(artifact, self._blocks_files[artifact_name])

    def _begin(self, step: int) -> None:
        """Refuse a step before its time, twice, or after a fault: until `_done`, the step counts as failed."""
        self._require(step - 1)
        self._step = _FAILED

    def _done(self, step: int) -> None:
        self._step = step

    def _require(self, step: int) -> None:
        if self._step != step:
            state = "a step failed" if self._step == _FAILED else f"step {self._step}"
            raise RuntimeError(f"the checks of a bundle were taken out of order: after {state}, not after step {step}")

    @property
    def _verified_manifest(self) -> BundleManifest:
        if self._manifest is None:  # pragma: no cover - _require comes first
            raise RuntimeError("bundle.json has not been verified")
        return self._manifest
