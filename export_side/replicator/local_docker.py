"""`--no-remove`: new images also go into this host's Docker, if there is one, and stay there."""

from __future__ import annotations

from pathlib import Path

from transload.export_side.replicator.tar_file import file_pieces
from transload.manifests.archive_layout import docker_manifest
from transload.shared.docker_engine import DockerEngine, LoadStream
from transload.shared.errors import EngineUnavailable, LoadFailed
from transload.shared.image import Image


def find_docker() -> tuple[DockerEngine | None, str]:
    """This host's Docker.

    Returns:
        The daemon, or None and why there is none.
    """
    engine = DockerEngine()
    try:
        engine.info()
    except EngineUnavailable as error:
        engine.close()
        return None, error.message
    return engine, ""


def keep(engine: DockerEngine, image: Image, tar: Path) -> None:
    """Load a docker-save file and see that the image is there and usable.

    Args:
        engine: The daemon.
        image: What is in the file.
        tar: The file.

    Raises:
        LoadFailed, NotEnoughSpace, EngineFailed: It was not loaded, or not as what it is.
    """
    name = str(image.name)
    engine.load(LoadStream(tar.stat().st_size, file_pieces(tar)), name)
    held = engine.inspect(name)
    manifest = docker_manifest(image)
    expected = {image.digest} | ({manifest.document.digest, manifest.config.digest} if manifest else set())
    if held is None or held.image_id not in expected:
        raise LoadFailed(
            f"Docker took {name}, but holds {held.image_id if held else 'nothing'} under that name.",
            hint="See the daemon's log (journalctl -u docker).",
            image=name,
        )
    try:
        engine.probe_usable(held.image_id, name)
    except LoadFailed:
        engine.remove(name)  # a name never stands for a broken image
        raise
