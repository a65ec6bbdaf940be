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

    def __init_subclass__(cls, *, exit_code: int | None = None, reference: str = "") -> None:
        """Give a class its exit code and its name for machines; a class without inherits both."""
        super().__init_subclass__()
        if exit_code is not None:
            cls.exit_code, cls.reference = exit_code, reference

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


class InvalidReference(TransloadError, exit_code=10, reference="invalid-reference"):
    """Text that is not an image reference, platform or digest."""


class InvalidImageList(TransloadError, exit_code=11, reference="invalid-image-list"):
    """The image list file is not readable, not YAML, or not of the documented shape."""


class InvalidConfiguration(TransloadError, exit_code=12, reference="invalid-configuration"):
    """Options that contradict each other, or a value out of its range."""


class KeyUnusable(TransloadError, exit_code=13, reference="key-unusable"):
    """A signing key file is missing, encrypted without a passphrase, too weak or of an unsupported type."""


class UnfinishedBundle(TransloadError, exit_code=14, reference="unfinished-bundle"):
    """Another request for the same destination has not been finished."""


class NothingSelected(TransloadError, exit_code=15, reference="nothing-selected"):
    """The request matches no image at all."""


class StateUnreadable(TransloadError, exit_code=16, reference="state-unreadable"):
    """state.yml exists but cannot be understood; the run never starts from nothing instead."""


class StateConflict(TransloadError, exit_code=17, reference="state-conflict"):
    """state.yml was edited while the run was going on; the run's own version was written beside it."""


class TargetNamesCollide(TransloadError, exit_code=18, reference="target-names-collide"):
    """Two source references fall on one target name."""


class CredentialsUnusable(TransloadError, exit_code=19, reference="credentials-unusable"):
    """A credential source (file, standard input, helper, docker's config.json) cannot be read."""


# --- 20-29: the source registry -----------------------------------------------------------------------------


class RegistryError(TransloadError, exit_code=20, reference="registry-error"):
    """Base of what goes wrong while talking to a registry; never raised itself."""


class RegistryUnreachable(RegistryError, exit_code=21, reference="registry-unreachable"):
    """No connection: name, refused, timeout, TLS. The facts name the host."""


class NotFoundInRegistry(RegistryError, exit_code=22, reference="not-found-in-registry"):
    """The registry has no such repository, tag, manifest or blob."""


class RegistryLoginRefused(RegistryError, exit_code=23, reference="registry-login-refused"):
    """The registry or its token server refuses the credentials, or wants some and none are known."""


class RegistryProtocolError(RegistryError, exit_code=24, reference="registry-protocol-error"):
    """An answer that a registry may not give: HTML, a manifest of the wrong shape, a wrong range."""


class ContentMismatch(RegistryError, exit_code=25, reference="content-mismatch"):
    """Bytes that are not those that the digest or size promised."""


class UnsupportedImage(RegistryError, exit_code=26, reference="unsupported-image"):
    """Schema 1, foreign layers, an unknown media type or digest algorithm."""


class PlatformNotFound(RegistryError, exit_code=27, reference="platform-not-found"):
    """The image has no manifest for the platform asked for, or is labelled as another one."""


class RegistryBusy(RegistryError, exit_code=28, reference="registry-busy"):
    """429 or 5xx still after the bounded retries, or a Retry-After beyond the cap."""


class InsecureRefused(RegistryError, exit_code=29, reference="insecure-refused"):
    """A redirect or realm that leaves https, crosses to a link-local address, or would leak credentials."""


# --- 30-39: a local engine ----------------------------------------------------------------------------------


class EngineUnavailable(TransloadError, exit_code=30, reference="engine-unavailable"):
    """No Docker daemon (or other engine) answers where it was looked for."""


class EngineFailed(TransloadError, exit_code=31, reference="engine-failed"):
    """The engine answered with an error that is not about an image's content."""


# --- 40-49: the medium and local files ----------------------------------------------------------------------


class PathMissing(TransloadError, exit_code=40, reference="path-missing"):
    """A file or directory that must exist does not."""


class NotEnoughSpace(TransloadError, exit_code=41, reference="not-enough-space"):
    """A file system cannot hold what is to be written; the facts give needed and available bytes."""


class ReadFailed(TransloadError, exit_code=42, reference="read-failed"):
    """The operating system could not read a file that is there."""


class WriteFailed(TransloadError, exit_code=43, reference="write-failed"):
    """The operating system could not write, sync or rename a file."""


class FileTooLarge(TransloadError, exit_code=44, reference="file-too-large"):
    """The file system or a limit allows no file of this size."""


class AlreadyExists(TransloadError, exit_code=45, reference="already-exists"):
    """Something is already where a new file is to be made, and it is never overwritten."""


class Locked(TransloadError, exit_code=46, reference="locked"):
    """Another run holds the lock on the same state or folder."""


class CopyDiffers(TransloadError, exit_code=47, reference="copy-differs"):
    """What was read back from the medium is not what was written to it."""


# --- 50-59: the bundle's format -----------------------------------------------------------------------------


class NotABundle(TransloadError, exit_code=50, reference="not-a-bundle"):
    """The directory holds no bundle, or an unfinished one."""


class MalformedBundle(TransloadError, exit_code=51, reference="malformed-bundle"):
    """A document of the bundle breaks the format: parse error, duplicate key, impossible offset."""


class UnnamedFile(TransloadError, exit_code=52, reference="unnamed-file"):
    """A file in the bundle directory that SHA256SUMS does not name."""


class UnsupportedVersion(TransloadError, exit_code=53, reference="unsupported-version"):
    """The bundle was written for a later format version, or requires what this version cannot do."""


# --- 60-69: integrity ---------------------------------------------------------------------------------------


class BundleFileMissing(TransloadError, exit_code=60, reference="bundle-file-missing"):
    """A file that the bundle names is not there."""


class BundleFileWrongSize(TransloadError, exit_code=61, reference="bundle-file-wrong-size"):
    """A file of the bundle is shorter or longer than it must be."""


class BundleFileDamaged(TransloadError, exit_code=62, reference="bundle-file-damaged"):
    """A file of the bundle does not have its digest."""


class BlockDamaged(TransloadError, exit_code=63, reference="block-damaged"):
    """One or more 4 MiB blocks of an artifact do not have their digests; the facts name chunk and blocks."""


class BlobDamaged(TransloadError, exit_code=64, reference="blob-damaged"):
    """A blob inside the archive does not have its digest although its blocks are intact."""


class LayerContentDiffers(TransloadError, exit_code=65, reference="layer-content-differs"):
    """A layer, decompressed, does not have the diff_id that its config names."""


class ArchiveInconsistent(TransloadError, exit_code=66, reference="archive-inconsistent"):
    """The archive's own headers or index disagree with bundle.json."""


# --- 70-79: authenticity ------------------------------------------------------------------------------------


class SignatureMissing(TransloadError, exit_code=70, reference="signature-missing"):
    """The bundle has no signature file."""


class SignatureMalformed(TransloadError, exit_code=71, reference="signature-malformed"):
    """A signature file is not a well-formed SSHSIG of the supported kind."""


class SignatureInvalid(TransloadError, exit_code=72, reference="signature-invalid"):
    """The signature is not one of SHA256SUMS by the key that it names."""


class SignerUnknown(TransloadError, exit_code=73, reference="signer-unknown"):
    """No line of the trust file admits the key that signed, for this namespace and signer name."""


class SignerOutOfTime(TransloadError, exit_code=74, reference="signer-out-of-time"):
    """The key is trusted, but not at the time of verification."""


class WrongDestination(TransloadError, exit_code=75, reference="wrong-destination"):
    """The bundle was made for another destination than the one pinned here."""


class OlderSequence(TransloadError, exit_code=76, reference="older-sequence"):
    """The bundle is older than one already accepted from the same exporter."""


class KeyTypeUnsupported(TransloadError, exit_code=77, reference="key-type-unsupported"):
    """Certificates, cert-authority lines, security keys, weak RSA, unknown algorithms."""


class TrustFileUnusable(TransloadError, exit_code=78, reference="trust-file-unusable"):
    """The allowed_signers file cannot be read or has a line that cannot be understood."""


class BundleIdReused(TransloadError, exit_code=79, reference="bundle-id-reused"):
    """Another bundle of the same id, with other content, was seen before: one of the two is not what it says."""


# --- 80-89: delivery ----------------------------------------------------------------------------------------


class TargetLoginRefused(TransloadError, exit_code=80, reference="target-login-refused"):
    """The internal registry refuses the credentials, or the project does not exist there."""


class TargetUnreachable(TransloadError, exit_code=81, reference="target-unreachable"):
    """The internal registry or its token server cannot be reached."""


class PushFailed(TransloadError, exit_code=82, reference="push-failed"):
    """The internal registry did not take a blob, manifest or tag."""


class LoadFailed(TransloadError, exit_code=83, reference="load-failed"):
    """The Docker daemon did not take the image, or took it and cannot use it."""


class DeliveredDigestDiffers(TransloadError, exit_code=84, reference="delivered-digest-differs"):
    """What the target now holds is not what was sent."""


class TagConflict(TransloadError, exit_code=85, reference="tag-conflict"):
    """The target's tag names another image, and the policy or the target forbids moving it."""


class TargetCannotHold(TransloadError, exit_code=86, reference="target-cannot-hold"):
    """The target kind has no way to hold this image (platform, name, size)."""


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
