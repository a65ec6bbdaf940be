"""What a bundle says about its images, brought out into a folder."""

from __future__ import annotations

from pathlib import Path

from transload.import_side.sinks.folders import make_folder
from transload.import_side.verified_bundle import VerifiedBundle
from transload.shared.atomic_files import write_atomically


def write_descriptions(bundle: VerifiedBundle, folder: Path) -> int:
    """Write every description of a bundle to a folder; one of the same name there is replaced.

    Args:
        bundle: Whose names have been checked: they are plain ones, so that nothing is written beside the folder.
        folder: Made if it is missing.

    Returns:
        How many there are.

    Raises:
        BundleFileDamaged: One is not what was signed any more.
        WriteFailed, NotEnoughSpace: What the operating system said.
    """
    if not bundle.manifest.descriptions:
        return 0
    make_folder(folder)
    for entry in bundle.manifest.descriptions:
        write_atomically(folder / entry.name.rpartition("/")[2], bundle.read_description(entry))
    return len(bundle.manifest.descriptions)
