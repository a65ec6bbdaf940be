"""What an export was asked for, and the fingerprint by which a rerun knows the same request again."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from transload.manifests.bundle_manifest import DESTINATION_PATTERN
from transload.manifests.chunks import whole_blocks
from transload.manifests.image_list import ListedImage, ListedNgc, ListEntry, PlatformChoice
from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import InvalidConfiguration
from transload.shared.platforms import DEFAULT_PLATFORM

DEFAULT_DESTINATION = "default"


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """Everything that decides what is in a bundle.

    Args:
        entries: Images and repositories, by name.
        platform: For the entries that name none.
        destination: Whom the bundle is for.
        chunk_size_bytes: Largest size of a chunk file, a whole number of blocks.

    Raises:
        InvalidConfiguration: A destination that is no plain short name.
    """

    entries: tuple[ListEntry, ...]
    platform: PlatformChoice = DEFAULT_PLATFORM
    destination: str = DEFAULT_DESTINATION
    chunk_size_bytes: int = whole_blocks(limits.DEFAULT_CHUNK_SIZE_BYTES)

    def __post_init__(self) -> None:
        if not re.fullmatch(DESTINATION_PATTERN, self.destination) or self.destination.startswith("-"):
            raise InvalidConfiguration(
                f"Not a destination name: {self.destination[:60]!r}.",
                hint="Use 1 to 24 of a-z, 0-9 and -, such as --destination plant-7.",
            )

    @property
    def fingerprint(self) -> str:
        """The same for the same request, whatever the order of its entries."""
        entries = sorted((self._entry_fields(entry) for entry in self.entries), key=msgspec.json.encode)
        fields = ["transload export 1", self.destination, self.chunk_size_bytes, entries]
        return str(Digest.of(msgspec.json.encode(fields)))

    def _entry_fields(self, entry: ListEntry) -> list[object]:
        platform = str(entry.platform or self.platform)
        if isinstance(entry, ListedImage):
            return ["image", str(entry.reference), platform, str(entry.rename or entry.reference)]
        if isinstance(entry, ListedNgc):
            images = sorted(entry.images)
            return ["ngc", entry.project, platform, images, entry.strict_name_match, entry.as_fields()]
        tags = sorted(entry.tags)
        return ["repository", entry.repository.repository, platform, tags, entry.tag_pattern, entry.as_fields()]
