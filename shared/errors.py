"""Every error a person can meet, each with its own exit code, name and hint.

The library raises these and never exits; `transload.shared.command_line` maps them to exit codes in one place.
Third-party exceptions stop at the module that wraps the third party (`raise ... from error`).

Exit codes come in families of ten (`docs/exit_codes.md` lists them and a test compares):

    10-19 the request          40-49 the medium and local files    70-79 authenticity: nothing is delivered
    20-29 the source registry  50-59 the bundle's format           80-89 delivery
    30-39 a local engine       60-69 integrity: copy it again

Codes outside the classes: 0 done, 1 a bug, 2 usage (click's), 3 some images done and the rest named,
130 and 143 stopped by a signal, the next run resumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

EXIT_DONE = 0
EXIT_BUG = 1
EXIT_USAGE = 2
EXIT_PARTIAL = 3
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class TransloadError(Exception):
    """Base of every error that is reported to a person.

    Args:
        message: What happened and where, what was expected and what was found. One or two sentences.
        hint: What to do about it, as an instruction.
        **facts: The same facts for machines (`--json`, reports): plain strings, numbers, lists. Never a secret.
    """

    exit_code: ClassVar[int] = EXIT_BUG
    reference: ClassVar[str] = "internal-error"

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def as_json(self) -> dict[str, object]:
        """The error as `--json` and reports show it."""
        return {"error": self.reference, "exit_code": self.exit_code, "message": self.message,
                "hint": self.hint, "facts": self.facts}  # fmt: skip


# --- 10-19: the request -------------------------------------------------------------------------------------


class InvalidReference(TransloadError):
    """Text that is not an image reference, platform or digest."""

    exit_code = 10
    reference = "invalid-reference"


class InvalidImageList(TransloadError):
    """The image list file is not readable, not YAML, or not of the documented shape."""

    exit_code = 11
    reference = "invalid-image-list"


class InvalidConfiguration(TransloadError):
    """Options that contradict each other, or a value out of its range."""

    exit_code = 12
    reference = "invalid-configuration"


class KeyUnusable(TransloadError):
    """A signing key file is missing, encrypted without a passphrase, too weak or of an unsupported type."""

    exit_code = 13
    reference = "key-unusable"


class UnfinishedBundle(TransloadError):
    """Another request for the same destination has not been finished."""

    exit_code = 14
    reference = "unfinished-bundle"


class NothingSelected(TransloadError):
    """The request matches no image at all."""

    exit_code = 15
    reference = "nothing-selected"


class StateUnreadable(TransloadError):
    """state.yml exists but cannot be understood; the run never starts from nothing instead."""

    exit_code = 16
    reference = "state-unreadable"


class StateConflict(TransloadError):
    """state.yml was edited while the run was going on; the run's own version was written beside it."""

    exit_code = 17
    reference = "state-conflict"


class TargetNamesCollide(TransloadError):
    """Two source references fall on one target name."""

    exit_code = 18
    reference = "target-names-collide"


class CredentialsUnusable(TransloadError):
    """A credential source (file, standard input, helper, docker's config.json) cannot be read."""

    exit_code = 19
    reference = "credentials-unusable"


# --- 20-29: the source registry -----------------------------------------------------------------------------


class RegistryError(TransloadError):
    """Base of what goes wrong while talking to a registry; never raised itself."""

    exit_code = 20
    reference = "registry-error"


class RegistryUnreachable(RegistryError):
    """No connection: name, refused, timeout, TLS. The facts name the host."""

    exit_code = 21
    reference = "registry-unreachable"


class NotFoundInRegistry(RegistryError):
    """The registry has no such repository, tag, manifest or blob."""

    exit_code = 22
    reference = "not-found-in-registry"


class RegistryLoginRefused(RegistryError):
    """The registry or its token server refuses the credentials, or wants some and none are known."""

    exit_code = 23
    reference = "registry-login-refused"


class RegistryProtocolError(RegistryError):
    """An answer that a registry may not give: HTML, a manifest of the wrong shape, a wrong range."""

    exit_code = 24
    reference = "registry-protocol-error"


class ContentMismatch(RegistryError):
    """Bytes that are not those that the digest or size promised."""

    exit_code = 25
    reference = "content-mismatch"


class UnsupportedImage(RegistryError):
    """Schema 1, foreign layers, an unknown media type or digest algorithm."""

    exit_code = 26
    reference = "unsupported-image"


class PlatformNotFound(RegistryError):
    """The image has no manifest for the platform asked for, or is labelled as another one."""

    exit_code = 27
    reference = "platform-not-found"


class RegistryBusy(RegistryError):
    """429 or 5xx still after the bounded retries, or a Retry-After beyond the cap."""

    exit_code = 28
    reference = "registry-busy"


class InsecureRefused(RegistryError):
    """A redirect or realm that leaves https, crosses to a link-local address, or would leak credentials."""

    exit_code = 29
    reference = "insecure-refused"


# --- 30-39: a local engine ----------------------------------------------------------------------------------


class EngineUnavailable(TransloadError):
    """No Docker daemon (or other engine) answers where it was looked for."""

    exit_code = 30
    reference = "engine-unavailable"


class EngineFailed(TransloadError):
    """The engine answered with an error that is not about an image's content."""

    exit_code = 31
    reference = "engine-failed"


# --- 40-49: the medium and local files ----------------------------------------------------------------------


class PathMissing(TransloadError):
    """A file or directory that must exist does not."""

    exit_code = 40
    reference = "path-missing"


class NotEnoughSpace(TransloadError):
    """A file system cannot hold what is to be written; the facts give needed and available bytes."""

    exit_code = 41
    reference = "not-enough-space"


class ReadFailed(TransloadError):
    """The operating system could not read a file that is there."""

    exit_code = 42
    reference = "read-failed"


class WriteFailed(TransloadError):
    """The operating system could not write, sync or rename a file."""

    exit_code = 43
    reference = "write-failed"


class FileTooLarge(TransloadError):
    """The file system or a limit allows no file of this size."""

    exit_code = 44
    reference = "file-too-large"


class AlreadyExists(TransloadError):
    """Something is already where a new file is to be made, and it is never overwritten."""

    exit_code = 45
    reference = "already-exists"


class Locked(TransloadError):
    """Another run holds the lock on the same state or folder."""

    exit_code = 46
    reference = "locked"


class CopyDiffers(TransloadError):
    """What was read back from the medium is not what was written to it."""

    exit_code = 47
    reference = "copy-differs"


# --- 50-59: the bundle's format -----------------------------------------------------------------------------


class NotABundle(TransloadError):
    """The directory holds no bundle, or an unfinished one."""

    exit_code = 50
    reference = "not-a-bundle"


class MalformedBundle(TransloadError):
    """A document of the bundle breaks the format: parse error, duplicate key, impossible offset."""

    exit_code = 51
    reference = "malformed-bundle"


class UnnamedFile(TransloadError):
    """A file in the bundle directory that SHA256SUMS does not name."""

    exit_code = 52
    reference = "unnamed-file"


class UnsupportedVersion(TransloadError):
    """The bundle was written for a later format version, or requires what this version cannot do."""

    exit_code = 53
    reference = "unsupported-version"


# --- 60-69: integrity ---------------------------------------------------------------------------------------


class BundleFileMissing(TransloadError):
    """A file that the bundle names is not there."""

    exit_code = 60
    reference = "bundle-file-missing"


class BundleFileWrongSize(TransloadError):
    """A file of the bundle is shorter or longer than it must be."""

    exit_code = 61
    reference = "bundle-file-wrong-size"


class BundleFileDamaged(TransloadError):
    """A file of the bundle does not have its digest."""

    exit_code = 62
    reference = "bundle-file-damaged"


class BlockDamaged(TransloadError):
    """One or more 4 MiB blocks of an artifact do not have their digests; the facts name chunk and blocks."""

    exit_code = 63
    reference = "block-damaged"


class BlobDamaged(TransloadError):
    """A blob inside the archive does not have its digest although its blocks are intact."""

    exit_code = 64
    reference = "blob-damaged"


class LayerContentDiffers(TransloadError):
    """A layer, decompressed, does not have the diff_id that its config names."""

    exit_code = 65
    reference = "layer-content-differs"


class ArchiveInconsistent(TransloadError):
    """The archive's own headers or index disagree with bundle.json."""

    exit_code = 66
    reference = "archive-inconsistent"


# --- 70-79: authenticity ------------------------------------------------------------------------------------


class SignatureMissing(TransloadError):
    """The bundle has no signature file."""

    exit_code = 70
    reference = "signature-missing"


class SignatureMalformed(TransloadError):
    """A signature file is not a well-formed SSHSIG of the supported kind."""

    exit_code = 71
    reference = "signature-malformed"


class SignatureInvalid(TransloadError):
    """The signature is not one of SHA256SUMS by the key that it names."""

    exit_code = 72
    reference = "signature-invalid"


class SignerUnknown(TransloadError):
    """No line of the trust file admits the key that signed, for this namespace and signer name."""

    exit_code = 73
    reference = "signer-unknown"


class SignerOutOfTime(TransloadError):
    """The key is trusted, but not at the time of verification."""

    exit_code = 74
    reference = "signer-out-of-time"


class WrongDestination(TransloadError):
    """The bundle was made for another destination than the one pinned here."""

    exit_code = 75
    reference = "wrong-destination"


class OlderSequence(TransloadError):
    """The bundle is older than one already accepted from the same exporter."""

    exit_code = 76
    reference = "older-sequence"


class KeyTypeUnsupported(TransloadError):
    """Certificates, cert-authority lines, security keys, weak RSA, unknown algorithms."""

    exit_code = 77
    reference = "key-type-unsupported"


class TrustFileUnusable(TransloadError):
    """The allowed_signers file cannot be read or has a line that cannot be understood."""

    exit_code = 78
    reference = "trust-file-unusable"


class BundleIdReused(TransloadError):
    """Another bundle of the same id, with other content, was seen before: one of the two is not what it says."""

    exit_code = 79
    reference = "bundle-id-reused"


# --- 80-89: delivery ----------------------------------------------------------------------------------------


class TargetLoginRefused(TransloadError):
    """The internal registry refuses the credentials, or the project does not exist there."""

    exit_code = 80
    reference = "target-login-refused"


class TargetUnreachable(TransloadError):
    """The internal registry or its token server cannot be reached."""

    exit_code = 81
    reference = "target-unreachable"


class PushFailed(TransloadError):
    """The internal registry did not take a blob, manifest or tag."""

    exit_code = 82
    reference = "push-failed"


class LoadFailed(TransloadError):
    """The Docker daemon did not take the image, or took it and cannot use it."""

    exit_code = 83
    reference = "load-failed"


class DeliveredDigestDiffers(TransloadError):
    """What the target now holds is not what was sent."""

    exit_code = 84
    reference = "delivered-digest-differs"


class TagConflict(TransloadError):
    """The target's tag names another image, and the policy or the target forbids moving it."""

    exit_code = 85
    reference = "tag-conflict"


class TargetCannotHold(TransloadError):
    """The target kind has no way to hold this image (platform, name, size)."""

    exit_code = 86
    reference = "target-cannot-hold"


class Faults(TransloadError):
    """All faults of one stage, reported together.

    Its exit code and reference are those of the gravest: authenticity outranks integrity, which outranks format,
    and after that the first one found.
    """

    def __init__(self, errors: Sequence[TransloadError]) -> None:
        gravest = min(errors, key=lambda error: _gravity(error.exit_code))
        super().__init__("\n".join(error.message for error in errors), hint=gravest.hint)
        self.errors = tuple(errors)
        self.exit_code = gravest.exit_code  # type: ignore[misc]  # of the instance: the gravest decides
        self.reference = gravest.reference  # type: ignore[misc]

    def as_json(self) -> dict[str, object]:
        """The gravest error, with every one of them under `errors`."""
        return {**super().as_json(), "errors": [error.as_json() for error in self.errors]}


def _gravity(exit_code: int) -> int:
    order = (7, 6, 5)  # families of ten: authenticity, integrity, format
    family = exit_code // 10
    return order.index(family) if family in order else len(order)


def raise_all(errors: Sequence[TransloadError]) -> None:
    """Raise nothing, the one error, or all of them as `Faults`.

    Args:
        errors: What a stage found, in order.

    Raises:
        TransloadError: The only error, or a `Faults` of several.
    """
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise Faults(errors)


class Interrupted(BaseException):
    """A signal asked the run to stop. Not an Exception, so that no handler swallows it.

    Args:
        exit_code: `EXIT_INTERRUPTED` or `EXIT_TERMINATED`.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code
