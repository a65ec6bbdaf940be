"""Whether a verified bundle may be imported here: destination, order and replays. Pure rules, no input or output.

    1. a bundle for another destination than the one pinned here is refused;
    2. a bundle seen before may be imported again, but not another bundle under its id;
    3. a new bundle with a lower number than the highest accepted, or an equal one, is refused, unless allowed;
    4. a gap in the numbers is a warning that names what is missing.

Numbers are counted per exporter; its destination is pinned by 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transload.import_side.import_state import ExporterRecord, ImportState
from transload.manifests.bundle_manifest import BundleManifest
from transload.shared.errors import BundleIdReused, OlderSequence, WrongDestination

_LATE = (
    "A bundle that turns up late is imported with --allow-older --on-existing-tag keep: what only it holds arrives, "
    "and no name is set back."
)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A bundle that may be imported.

    Args:
        is_new: It was not seen before.
        missing: Numbers of the same exporter that have never been seen and come before it.
        notes: What a person should know, a sentence each.
    """

    is_new: bool
    missing: Sequence[int] = ()
    notes: tuple[str, ...] = ()


def accept(
    state: ImportState, manifest: BundleManifest, *, checksums_digest: str, allow_older: bool = False
) -> Acceptance:
    """Judge a bundle whose signature and documents have been verified. The state is not changed.

    Args:
        state: What this importer has seen.
        manifest: The bundle's bundle.json.
        checksums_digest: `sha256:...` of its SHA256SUMS.
        allow_older: The operator's `--allow-older`.

    Raises:
        WrongDestination: It was made for somebody else.
        BundleIdReused: A bundle with this id and other content was seen before.
        OlderSequence: It is older than what was accepted, and that was not allowed.
    """
    # 1. The destination.
    if state.destination and manifest.destination != state.destination:
        raise WrongDestination(
            f"The bundle {manifest.bundle_id} was made for destination {manifest.destination!r}; "
            f"this importer is {state.destination!r}.",
            hint=f"Export with --destination {state.destination}, or import it with another --state file "
            "if this host serves both.",
            bundle=manifest.bundle_id,
            expected=state.destination,
            found=manifest.destination,
        )
    # 2. Seen before.
    seen = state.seen(manifest.exporter, manifest.bundle_id)
    if seen is not None:
        if seen.checksums != checksums_digest or seen.sequence != manifest.sequence:
            raise BundleIdReused(
                f"A bundle {manifest.bundle_id} with other content was accepted on {seen.first_seen}: its SHA256SUMS "
                f"was {seen.checksums}, this one's is {checksums_digest}.",
                hint="Ask the exporter which of the two is genuine; a bundle is never changed after it is sealed.",
                bundle=manifest.bundle_id,
                expected=seen.checksums,
                found=checksums_digest,
            )
        note = f"Bundle {manifest.bundle_id} was seen before ({seen.first_seen}); only what is missing is delivered."
        return Acceptance(is_new=False, notes=(note,))
    # 3. The order.
    exporter = state.exporters.get(manifest.exporter, ExporterRecord())
    if manifest.sequence <= exporter.highest_sequence:
        return _accept_older(manifest, exporter, allow_older=allow_older)
    # 4. Gaps.
    missing: Sequence[int] = range(exporter.highest_sequence + 1, manifest.sequence) or ()
    return Acceptance(is_new=True, missing=missing, notes=_gap_notes(manifest, exporter, missing))


def moves_back(state: ImportState, sink: str, target: str, *, digest: str, manifest: BundleManifest) -> str | None:
    """Why delivering an image would set its target reference back to something older, or None if it would not.

    Only bundles of one exporter can be compared; the reference's digest must change for it to be moved at all.

    Args:
        state: What was delivered.
        sink: The sink's identity.
        target: The target reference.
        digest: What would be delivered.
        manifest: The bundle that it comes from.
    """
    known = state.delivered(sink, target)
    if known is None or known.digest == digest or known.exporter != manifest.exporter:
        return None
    if manifest.sequence >= known.sequence:
        return None
    return (
        f"{target} holds {known.digest} from bundle {known.bundle} (number {known.sequence}); "
        f"number {manifest.sequence} would set it back to {digest}."
    )


def _accept_older(manifest: BundleManifest, exporter: ExporterRecord, *, allow_older: bool) -> Acceptance:
    twin = next((name for name, seen in exporter.bundles.items() if seen.sequence == manifest.sequence), None)
    newest = next((name for name, seen in exporter.bundles.items() if seen.sequence == exporter.highest_sequence), "")
    highest = f"number {exporter.highest_sequence}{f' ({newest})' if newest else ''}"
    if twin is not None:
        what = f"has number {manifest.sequence}, which bundle {twin} has too"
        hint = "The exporter's state was probably set back. Find out which bundle is meant; --allow-older takes this."
    else:
        what = f"has number {manifest.sequence}, but {highest} of the same exporter was accepted already"
        hint = f"{_LATE} --allow-older alone would set them back to what this old bundle has."
    if not allow_older:
        raise OlderSequence(
            f"The bundle {manifest.bundle_id} {what}.",
            hint=hint,
            bundle=manifest.bundle_id,
            sequence=manifest.sequence,
            highest_sequence=exporter.highest_sequence,
        )
    return Acceptance(is_new=True, notes=(f"Bundle {manifest.bundle_id} {what}; accepted with --allow-older.",))


def _gap_notes(manifest: BundleManifest, exporter: ExporterRecord, missing: Sequence[int]) -> tuple[str, ...]:
    if not missing:
        return ()
    numbers = str(missing[0]) if len(missing) == 1 else f"{missing[0]} to {missing[-1]}"
    previous = manifest.previous
    named = f" (the last of them is {previous})" if previous and previous not in exporter.bundles else ""
    since = f"after number {exporter.highest_sequence}" if exporter.bundles else "as the first from its exporter"
    note = (
        f"Bundle {manifest.bundle_id} has number {manifest.sequence} and comes {since}: "
        f"{numbers}{named} never arrived here. What was only in there is missing. {_LATE}"
    )
    return (note,)
