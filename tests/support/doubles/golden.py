"""The golden bundle (tests/golden/version-1): what was asked for, by whom and when; made again from its own blobs."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

from doubles.image_factory import ImageDouble, image, index, noise_layer
from doubles.scripted_registry import Repository, ScriptedRegistry
from doubles.signer import Signer
from transload.export_side import documents
from transload.export_side.export_state import ExportState
from transload.export_side.exporter import Exporter
from transload.export_side.request import ExportRequest
from transload.manifests import bundle_manifest
from transload.manifests.bundle_manifest import BundleManifest
from transload.manifests.image_list import ListedImage
from transload.shared.digests import Digest
from transload.shared.image import INDEX_TYPES, MANIFEST_TYPES
from transload.shared.limits import BLOCK_SIZE_BYTES
from transload.shared.platforms import Platform
from transload.shared.progress import SilentProgress
from transload.shared.references import Reference
from transload.shared.registry.options import RegistryDirectory
from transload.shared.state_file import FILE_NAME, encode_state
from transload.shared.workers import Stop

HOST = "registry.example"
SIGNER = Signer("golden@example.org")
EXPORTER_ID = "0123456789abcdef0123456789abcdef"
CLOCK = datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
TOOL_VERSION = "0.1.0"


def images() -> list[ImageDouble]:
    """Every kind of image, as they were when the bundle was first made. Only `make_golden.py` needs them."""
    base = noise_layer("golden-base", 20_000)
    plain, zstd = noise_layer("golden-plain", 3_000, ""), noise_layer("golden-zstd", 3_000, "zstd")
    machines = [
        image("x", [base]),
        image("x", [noise_layer("golden-arm64", 5_000)], platform="linux/arm64/v8"),
    ]
    return [
        image(f"{HOST}/golden/oci:1", [base, plain, zstd, plain]),
        image(f"{HOST}/golden/docker:1", [base, noise_layer("golden-docker", 4_000)], docker=True),
        index(f"{HOST}/golden/multi:1", machines, attestation=True),
        image(f"{HOST}/golden/empty:1", [], environment=["GOLDEN=yes"]),
    ]


def request(oci_digest: Digest) -> ExportRequest:
    """What was asked for.

    Args:
        oci_digest: Of golden/oci:1, which is also asked for by digest.
    """

    def named(name: str) -> Reference:
        return Reference.parse(f"{HOST}/golden/{name}")

    entries = (
        ListedImage(named("oci:1")),
        ListedImage(named(f"oci@{oci_digest}")),
        ListedImage(named("docker:1")),
        ListedImage(named("multi:1"), platform="all"),
        ListedImage(named("multi:1"), platform=Platform("linux", "arm64"), rename=named("renamed-arm:1")),
        ListedImage(named("empty:1")),
    )
    return ExportRequest(entries, destination="golden", chunk_size_bytes=BLOCK_SIZE_BYTES)


def fill_from_bundle(source: ScriptedRegistry, bundle: Path) -> BundleManifest:
    """Give a registry everything that the golden bundle holds, out of the bundle itself.

    So the bytes depend on no compressor and no double of today.
    """
    manifest = bundle_manifest.decode((bundle / bundle_manifest.FILE_NAME).read_bytes())
    archive = b"".join((bundle / chunk.name).read_bytes() for chunk in manifest.artifacts[0].chunks)
    contents = {blob.digest: archive[blob.offset : blob.offset + blob.size] for blob in manifest.blobs}
    for entry in manifest.images:
        reference = Reference.parse(entry.reference)
        repository = source.repositories.setdefault(reference.path, Repository())
        for digest in entry.blobs:
            media_type = _media_type(contents[digest])
            if media_type:
                repository.manifests[digest] = (media_type, contents[digest])
            else:
                repository.blobs[digest] = contents[digest]
        if reference.tag:
            repository.tags[reference.tag] = entry.source_digest
    return manifest


def _media_type(raw: bytes) -> str:
    """What a manifest or index says of itself; empty for other blobs."""
    types = (*MANIFEST_TYPES, *INDEX_TYPES)
    return next((one for one in types if f'"mediaType":"{one}"'.encode() in raw[:120]), "")


def export(source: ScriptedRegistry, output: Path, oci_digest: Digest) -> Path:
    """Make the golden bundle with the real exporter, its fixed key, clock and exporter id.

    Returns:
        The bundle's folder.
    """
    output.mkdir()
    fresh = ExportState(schema=ExportState.SCHEMA, side=ExportState.SIDE, exporter=EXPORTER_ID)
    (output / FILE_NAME).write_bytes(encode_state(fresh))
    registries = RegistryDirectory(insecure_hosts=frozenset({HOST}), environment={})
    exporter = Exporter(
        request(oci_digest), output, registries, SIGNER.sign, 2, False, False, Stop(), SilentProgress(), lambda: CLOCK
    )
    with _name_leads_to(source.host), mock.patch.object(documents, "version", return_value=TOOL_VERSION):
        result = exporter.run()
    assert result.path is not None
    return result.path


@contextlib.contextmanager
def _name_leads_to(address: str) -> Iterator[None]:
    """Let HOST be this address: references of a bundle do not name the port of one test run."""
    ip_address, _, port = address.partition(":")
    real: Callable[..., Any] = socket.getaddrinfo

    def getaddrinfo(host: str, *arguments: Any, **options: Any) -> Any:
        if host != HOST:
            return real(host, *arguments, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip_address, int(port)))]

    with mock.patch.object(socket, "getaddrinfo", getaddrinfo):
        yield


def oci_digest(manifest: BundleManifest) -> Digest:
    """The digest of golden/oci:1 in a bundle."""
    return next(Digest.parse(entry.digest) for entry in manifest.images if entry.name == f"{HOST}/golden/oci:1")
