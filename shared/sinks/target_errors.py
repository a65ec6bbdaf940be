"""Errors of a registry, told as errors of a delivery: the same words, with what the target means by them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from transload.shared.errors import (
    ContentMismatch,
    DeliveredDigestDiffers,
    InsecureRefused,
    NotFoundInRegistry,
    PushFailed,
    RegistryBusy,
    RegistryError,
    RegistryLoginRefused,
    RegistryProtocolError,
    RegistryUnreachable,
    TagConflict,
    TargetLoginRefused,
    TargetUnreachable,
    TransloadError,
    UnsupportedImage,
)

_PROJECT = (
    "Check the login (--login, or docker login) and that it may push there. Some registries (Harbor, ECR) answer so "
    "until the project or repository is made: make it first."
)
_CLASSES: dict[type[RegistryError], type[TransloadError]] = {
    RegistryUnreachable: TargetUnreachable,
    RegistryBusy: TargetUnreachable,
    InsecureRefused: TargetUnreachable,
    RegistryLoginRefused: TargetLoginRefused,
    NotFoundInRegistry: PushFailed,
    RegistryProtocolError: PushFailed,
    UnsupportedImage: PushFailed,
    ContentMismatch: DeliveredDigestDiffers,
}
_IMMUTABLE_STATUSES = (400, 403, 405, 409, 412)
_IMMUTABLE_WORDS = ("immutable", "already exist", "tag_invalid", "tag invalid", "overwrite", "cannot be updated")
"""How ECR, Harbor, Nexus, Artifactory and Quay refuse to move a tag."""


@contextlib.contextmanager
def as_target_errors(target: str) -> Iterator[None]:
    """Translate what talking to a registry raises.

    Args:
        target: Where images were to go, for the facts.

    Raises:
        TargetUnreachable, TargetLoginRefused, PushFailed, DeliveredDigestDiffers: By the registry's error.
    """
    try:
        yield
    except RegistryError as error:
        raise target_error(error, target) from error


def target_error(error: RegistryError, target: str) -> TransloadError:
    """The delivery's error for a registry's."""
    kind = _CLASSES.get(type(error), PushFailed)
    hint = _PROJECT if isinstance(error, (RegistryLoginRefused, NotFoundInRegistry)) else error.hint
    message = error.message
    if isinstance(error, (RegistryLoginRefused, NotFoundInRegistry)):
        message = f"{target} cannot be delivered: {message}"
    return kind(message, hint=hint, **{**error.facts, "target": target})


def tag_conflict(error: TransloadError, target: str, found: str | None, expected: str) -> TagConflict | None:
    """The error for a registry that lets no tag be moved, if that is what it said.

    Args:
        error: What putting the tag raised.
        target: The target reference.
        found: What the tag stands for, if it is there.
        expected: What it should stand for.
    """
    words = f"{error.message} {error.facts.get('codes', '')}".lower()
    status = error.facts.get("status")
    if found is None or status not in _IMMUTABLE_STATUSES or not any(word in words for word in _IMMUTABLE_WORDS):
        return None
    return TagConflict(
        f"{target} stands for {found}, and the registry does not let it be moved to {expected}: {error.message}",
        hint="Its tags are immutable. Deliver under another name with --rename FROM=TO, or have the tag removed there.",
        target=target,
        found=found,
        expected=expected,
    )
