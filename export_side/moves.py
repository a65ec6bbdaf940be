"""Another plan for chunk files that are partly filled: what is in place is moved, not fetched again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from transload.export_side.chunk_files import ChunkFiles
from transload.export_side.plan import ExportPlan
from transload.shared.digests import Digest
from transload.shared.workers import Stop


def move_blobs(
    old: ChunkFiles,
    new: ChunkFiles,
    old_plan: ExportPlan,
    new_plan: ExportPlan,
    placed: Mapping[Digest, int],
    stop: Stop,
) -> Iterator[tuple[Digest, int]]:
    """Bring the blobs of a smaller plan to their new places, within the same files.

    In the new order, a blob whose old place begins at or after its new one has not been overwritten yet, because
    everything written before lies before its new place; and copying it forwards does not overwrite what is still
    to be read of it. A blob that would move to the right may be overwritten already: it is left to be fetched.

    Args:
        old: The chunk files as the old plan cuts them.
        new: The same files as the new plan cuts them.
        old_plan: Where blobs are.
        new_plan: Where they are to be.
        placed: How many bytes of each blob are in place by the old plan.
        stop: Ends the run.

    Yields:
        Every blob that was moved, and how many bytes of it.
    """
    for place in new_plan.layout.blobs:
        before = old_plan.places.get(place.digest)
        size = min(placed.get(place.digest, 0), place.size_bytes)
        if before is None or size == 0 or before.offset < place.offset:
            continue
        position = place.offset
        if before.offset != place.offset:
            for content in old.read(before.offset, size):
                stop.check()
                new.write(position, content)
                position += len(content)
        yield place.digest, size
