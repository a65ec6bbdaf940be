"""Platforms: operating system, architecture and variant of an image."""

from __future__ import annotations

import re
from dataclasses import dataclass

from transload.shared.errors import InvalidReference

_PART = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}", re.ASCII)
_DEFAULT_VARIANTS = {"arm64": "v8", "arm": "v7"}
"""containerd's normalisation: arm64 without a variant is arm64/v8, arm is arm/v7."""


@dataclass(frozen=True, slots=True, order=True)
class Platform:
    """An image's platform.

    Args:
        os: GOOS, such as `linux`.
        architecture: GOARCH, such as `amd64` or `arm64`.
        variant: Such as `v8`, or empty.
    """

    os: str
    architecture: str
    variant: str = ""

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Read `OS/ARCHITECTURE[/VARIANT]`.

        Raises:
            InvalidReference: Text of another shape.
        """
        parts = text.split("/")
        if len(parts) not in (2, 3) or not all(_PART.fullmatch(part) for part in parts):
            meant = f" Is linux/{text} meant?" if _PART.fullmatch(text) and text != "linux" else ""
            raise InvalidReference(
                f"Not a platform: {text[:100]!r}.", hint=f"Write it like linux/amd64 or linux/arm64/v8.{meant}"
            )
        return cls(*parts)

    @property
    def is_known(self) -> bool:
        """False for the unknown/unknown that marks attestations in an index."""
        return "unknown" not in (self.os, self.architecture)

    def satisfies(self, wanted: Platform) -> bool:
        """Whether this platform is the one wanted.

        A variant left out of the wish is any variant; one left out of the image is the architecture's default.
        """
        if (self.os, self.architecture) != (wanted.os, wanted.architecture):
            return False
        return not wanted.variant or self._normal_variant() == wanted.variant

    def _normal_variant(self) -> str:
        return self.variant or _DEFAULT_VARIANTS.get(self.architecture, "")

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


DEFAULT_PLATFORM = Platform("linux", "amd64")
