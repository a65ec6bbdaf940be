"""What damage comes to: one fault for each chunk file, and the images that it costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from transload.manifests.bundle_manifest import ArtifactEntry, BundleManifest
from transload.shared.errors import BlockDamaged, BundleFileWrongSize, ReadFailed, TransloadError

_MOST_RANGES = 20
_WHAT = {
    BlockDamaged: ("is damaged", "are damaged"),
    BundleFileWrongSize: ("is not there", "are not there"),
    ReadFailed: ("cannot be read", "cannot be read"),
}


def by_chunk(artifact_of: Iterable[tuple[ArtifactEntry, int, TransloadError]]) -> Iterator[TransloadError]:
    """One fault for all bad blocks of a chunk file, so that each file to copy again is named once.

    Args:
        artifact_of: The bad blocks: of which artifact, their numbers there, and what is wrong with them.
    """
    groups: dict[tuple[str, type[TransloadError], str], list[tuple[int, TransloadError]]] = defaultdict(list)
    artifacts: dict[str, ArtifactEntry] = {}
    others: dict[str, TransloadError] = {}
    for artifact, number, error in artifact_of:
        file = str(error.facts.get("file"))
        if type(error) in _WHAT:
            artifacts[file] = artifact
            groups[file, type(error), str(error.facts.get("reason", ""))].append((number, error))
        else:
            others[error.message] = error
    for (file, kind, reason), group in sorted(groups.items(), key=lambda item: item[0][0]):
        group.sort(key=lambda one: one[0])
        yield _one_fault(file, kind, reason, artifacts[file], group)
    yield from (others[message] for message in sorted(others))


def images_hit(manifest: BundleManifest, faults: Iterable[TransloadError]) -> list[str]:
    """Names of the images that cannot be had intact because of these faults, in the order of bundle.json.

    Args:
        manifest: The bundle's.
        faults: Of blocks, chunk files, blobs or layers; others cost no image by themselves.
    """
    digests: set[str] = set()
    for fault in faults:
        digests.update(str(fault.facts[key]) for key in ("blob", "layer") if key in fault.facts)
        for artifact in manifest.artifacts:
            ranges = _bad_ranges(artifact, fault)
            digests.update(
                blob.digest
                for blob in manifest.blobs
                if blob.artifact == artifact.name
                and any(blob.offset < end and start < blob.offset + blob.size for start, end in ranges)
            )
    return [entry.name for entry in manifest.images if not digests.isdisjoint(entry.blobs)]


def _bad_ranges(artifact: ArtifactEntry, fault: TransloadError) -> list[tuple[int, int]]:
    """Where in an artifact a fault lies, as half-open ranges."""
    blocks, size = fault.facts.get("blocks"), artifact.block_size
    if isinstance(blocks, list):
        return [(n * size, (n + 1) * size) for n in blocks if fault.facts.get("artifact") == artifact.name]
    start = 0
    for chunk in artifact.chunks:
        if chunk.name == fault.facts.get("file"):
            return [(start, start + chunk.size)]
        start += chunk.size
    return [(0, artifact.size)] if fault.facts.get("file") == artifact.blocks else []


def _one_fault(
    file: str,
    kind: type[TransloadError],
    reason: str,
    artifact: ArtifactEntry,
    group: Sequence[tuple[int, TransloadError]],
) -> TransloadError:
    blocks = [number for number, _ in group]
    ranges = _joined_ranges(file, artifact, blocks)
    shown = ", ".join(f"{first:,}-{last:,}" for first, last in ranges[:_MOST_RANGES])
    more = f" and {len(ranges) - _MOST_RANGES} more ranges" if len(ranges) > _MOST_RANGES else ""
    one, several = _WHAT[kind]
    count = f"1 of its blocks {one}" if len(blocks) == 1 else f"{len(blocks)} of its blocks {several}"
    because = f" ({reason})" if reason else ""
    copy_again = f"Copy {file} again from where the bundle was exported, or from another copy."
    return kind(
        f"{file}: {count}{because}, at bytes {shown}{more}.",
        hint=group[0][1].hint if kind is ReadFailed else copy_again,
        file=file,
        artifact=artifact.name,
        blocks=blocks,
        ranges=[list(one) for one in ranges],
    )


def _joined_ranges(file: str, artifact: ArtifactEntry, blocks: Sequence[int]) -> list[tuple[int, int]]:
    """First and last byte in the file of these blocks, neighbours together."""
    start = 0
    for chunk in artifact.chunks:
        if chunk.name == file:
            break
        start += chunk.size
    ranges: list[tuple[int, int]] = []
    for number in blocks:
        first = number * artifact.block_size - start
        last = min((number + 1) * artifact.block_size, artifact.size) - start - 1
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    return ranges
