"""bundle.json: what a bundle holds, typed, canonical and strict (FORMAT.md, "bundle.json").

Canonical means UTF-8, sorted keys, no insignificant space, no floats, no unknown field: a document is accepted
only if decoding and encoding it again gives the same bytes. That also refuses duplicate keys.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from transload.shared import limits
from transload.shared.errors import MalformedBundle, UnsupportedVersion

FORMAT: Final = "transload-bundle"
VERSION = 1
FILE_NAME = "bundle.json"
IMAGES_ARTIFACT = "images.tar"
DESCRIPTIONS_FOLDER = "descriptions"

# Python's `$` also matches before a newline at the end, JSON Schema's does not: `(?!\n)` makes them agree.
_END = r"$(?!\n)"
BUNDLE_ID_PATTERN = r"^[a-z0-9][a-z0-9.-]{0,62}[a-z0-9]" + _END
DESTINATION_PATTERN = r"^[a-z0-9-]{1,24}" + _END
FILE_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9][A-Za-z0-9._-]{0,199})?" + _END

Size = Annotated[int, Meta(ge=0, le=1 << 50)]
DESCRIPTION_NAME_PATTERN = rf"^{DESCRIPTIONS_FOLDER}/[A-Za-z0-9][A-Za-z0-9._-]{{0,196}}\.md" + _END

DigestText = Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})" + _END)]
FileName = Annotated[str, Meta(pattern=FILE_NAME_PATTERN)]
BundleId = Annotated[str, Meta(pattern=BUNDLE_ID_PATTERN)]
ReferenceText = Annotated[str, Meta(min_length=1, max_length=600)]
ShortText = Annotated[str, Meta(max_length=4096)]


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ImageEntry(_Entry, frozen=True, kw_only=True):
    """One image of the bundle.

    Attributes:
        reference: What was asked for, normalised.
        name: What the archive and the targets call it; `reference` unless it was renamed.
        source_digest: What the reference resolved to at the source.
        digest: The manifest or index that is carried and delivered.
        media_type: That document's media type.
        platform: `os/architecture[/variant]`, or null for a whole index.
        blobs: Every blob of the image, graph order: documents, configs, layers.
    """

    reference: ReferenceText
    name: ReferenceText
    source_digest: DigestText
    digest: DigestText
    media_type: ShortText
    platform: ShortText | None
    blobs: Annotated[tuple[DigestText, ...], Meta(max_length=limits.MAX_BUNDLE_ENTRIES)]


class BlobEntry(_Entry, frozen=True, kw_only=True):
    """Where a blob lies.

    Attributes:
        digest: The blob's digest.
        size: Its size in bytes.
        artifact: Name of the artifact that holds it.
        offset: Where in the artifact its first byte is.
    """

    digest: DigestText
    size: Size
    artifact: FileName
    offset: Size


class ChunkEntry(_Entry, frozen=True, kw_only=True):
    """One chunk file.

    Attributes:
        name: File name in the bundle.
        size: Its size in bytes; all but the last of an artifact have the same, a multiple of the block size.
    """

    name: FileName
    size: Annotated[int, Meta(ge=1, le=limits.MAX_CHUNK_SIZE_LARGE_FILES_BYTES)]


class ArtifactEntry(_Entry, frozen=True, kw_only=True):
    """A file that is carried in chunks.

    Attributes:
        name: Its name, which its chunks extend.
        kind: `docker-archive` for images.tar.
        size: Its size in bytes, the sum of its chunks.
        block_size: Size of all its blocks but the last.
        blocks: Name of the file with the SHA-256 of every block, 32 bytes each.
        chunks: In order.
    """

    name: FileName
    kind: Literal["docker-archive"]
    size: Size
    block_size: Literal[4194304]
    blocks: FileName
    chunks: Annotated[tuple[ChunkEntry, ...], Meta(min_length=1, max_length=limits.MAX_CHUNKS)]


class FailedEntry(_Entry, frozen=True, kw_only=True):
    """Something that was asked for and is not in the bundle.

    Attributes:
        reference: What was asked for.
        error: The error's name, such as `not-found-in-registry`.
        message: What happened.
    """

    reference: ReferenceText
    error: ShortText
    message: ShortText


class DescriptionEntry(_Entry, frozen=True, kw_only=True):
    """A text about images: what a catalogue says about their repository.

    Attributes:
        name: File name in the bundle.
        repository: The repository, `host/path`, as the images' references have it.
        size: Its size in bytes.
    """

    name: Annotated[str, Meta(pattern=DESCRIPTION_NAME_PATTERN)]
    repository: ReferenceText
    size: Annotated[int, Meta(ge=1, le=limits.MAX_DESCRIPTION_BYTES)]


class BundleManifest(_Entry, frozen=True, kw_only=True):
    """The whole of bundle.json.

    Attributes:
        format: Always `transload-bundle`.
        version: The format's version.
        bundle_id: `<destination>-<sequence>-<date>-<4 hex of the exporter>`; the folder may be renamed.
        exporter: Random id that an exporter keeps in its state.
        destination: Whom the bundle is for.
        sequence: Counts the bundles of one exporter for one destination, from 1.
        previous: Id of the bundle before it, for information.
        created: UTC time, `YYYY-MM-DDTHH:MM:SSZ`.
        tool: Name and version of the exporter.
        images: What is in it.
        blobs: Where every blob lies, in ascending order of artifact and offset.
        requires: Bundles that must be there as well; always empty in version 1.
        artifacts: The files that are carried in chunks.
        failed: What was asked for and is not in it.
        descriptions: Texts about the images, by name.
    """

    format: Literal["transload-bundle"] = FORMAT
    version: int = VERSION
    bundle_id: BundleId
    exporter: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}" + _END)]
    destination: Annotated[str, Meta(pattern=DESTINATION_PATTERN)]
    sequence: Annotated[int, Meta(ge=1, le=999_999_999)]
    previous: BundleId | None
    created: Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z" + _END)]
    tool: ShortText
    images: Annotated[tuple[ImageEntry, ...], Meta(max_length=limits.MAX_BUNDLE_ENTRIES)]
    blobs: Annotated[tuple[BlobEntry, ...], Meta(max_length=limits.MAX_BUNDLE_ENTRIES)]
    requires: tuple[BundleId, ...] = ()
    artifacts: Annotated[tuple[ArtifactEntry, ...], Meta(min_length=1, max_length=1_000)]
    failed: Annotated[tuple[FailedEntry, ...], Meta(max_length=limits.MAX_BUNDLE_ENTRIES)]
    descriptions: Annotated[tuple[DescriptionEntry, ...], Meta(max_length=limits.MAX_DESCRIPTIONS)] = ()


class _Version(msgspec.Struct):
    format: str
    version: int


def encode(manifest: BundleManifest) -> bytes:
    """The canonical bytes of bundle.json."""
    return msgspec.json.encode(manifest, order="sorted") + b"\n"


def decode(raw: bytes) -> BundleManifest:
    """Read bundle.json strictly.

    Args:
        raw: Bytes whose digest has been compared with SHA256SUMS.

    Raises:
        UnsupportedVersion: Written for a later version, or requiring other bundles.
        MalformedBundle: Anything that is not canonical or breaks a rule of FORMAT.md.
    """
    try:
        head = msgspec.json.decode(raw, type=_Version)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedBundle(f"{FILE_NAME} cannot be read: {error}.") from error
    if head.format == FORMAT and head.version > VERSION:
        raise UnsupportedVersion(
            f"The bundle has format version {head.version}; this transload reads up to version {VERSION}.",
            hint="Bring a newer transload to this side.",
        )
    try:
        manifest = msgspec.json.decode(raw, type=BundleManifest, strict=True)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedBundle(f"{FILE_NAME} breaks the format: {error}.") from error
    if encode(manifest) != raw:
        raise MalformedBundle(f"{FILE_NAME} is not canonical: decoded and encoded again it is other bytes.")
    if manifest.version != VERSION:
        raise MalformedBundle(f"{FILE_NAME} has format version {manifest.version}; versions begin at {VERSION}.")
    if manifest.requires:
        raise UnsupportedVersion(
            f"The bundle requires other bundles ({', '.join(manifest.requires[:3])}); this transload cannot do that.",
            hint="Bring a newer transload to this side.",
        )
    _check_rules(manifest)
    return manifest


def _check_rules(manifest: BundleManifest) -> None:
    """What the types cannot say: sums, order, uniqueness, containment."""
    artifacts = {artifact.name: artifact for artifact in manifest.artifacts}
    names = [name for artifact in manifest.artifacts for name in (artifact.blocks, *(c.name for c in artifact.chunks))]
    names += [description.name for description in manifest.descriptions]
    _refuse(len(artifacts) != len(manifest.artifacts), "two artifacts have one name")
    _refuse(len({name.casefold() for name in names}) != len(names), "two files have one name, case apart")
    for artifact in manifest.artifacts:
        _check_chunks(artifact)
    _refuse(not _is_time(manifest.created), f"{manifest.created} is no time")
    end: dict[str, int] = {}
    for blob in manifest.blobs:
        place = artifacts.get(blob.artifact)
        if place is None:
            raise MalformedBundle(f"{FILE_NAME}: blob {blob.digest} lies in {blob.artifact}, which is not listed.")
        _refuse(blob.offset + blob.size > place.size, f"blob {blob.digest} ends outside {blob.artifact}")
        _refuse(blob.offset < end.get(blob.artifact, 0), f"blob {blob.digest} overlaps another or is out of order")
        end[blob.artifact] = blob.offset + blob.size
    places = [(blob.artifact, blob.offset) for blob in manifest.blobs]
    _refuse(places != sorted(places), "the blobs are not in ascending order of artifact and offset")
    known = {blob.digest for blob in manifest.blobs}
    _refuse(len(known) != len(manifest.blobs), "one blob is listed twice")
    used: set[str] = set()
    for image in manifest.images:
        missing = next((digest for digest in image.blobs if digest not in known), None)
        _refuse(missing is not None, f"image {image.reference} names blob {missing}, which is not listed")
        _refuse(
            image.digest not in image.blobs[:1],
            f"image {image.reference} does not begin with its own document",
        )
        _refuse(len(set(image.blobs)) != len(image.blobs), f"image {image.reference} names a blob twice")
        used.update(image.blobs)
    _refuse(used != known, "a blob belongs to no image")
    _refuse(len({image.name for image in manifest.images}) != len(manifest.images), "two images have one name")
    _check_descriptions(manifest)


def _check_descriptions(manifest: BundleManifest) -> None:
    names = [description.name for description in manifest.descriptions]
    _refuse(names != sorted(names), "the descriptions are not in ascending order of names")
    described = [description.repository for description in manifest.descriptions]
    _refuse(len(set(described)) != len(described), "one repository is described twice")
    repositories = {repository_of(image.reference) for image in manifest.images}
    stranger = next((repository for repository in described if repository not in repositories), None)
    _refuse(stranger is not None, f"{stranger} is described and no image is of it")
    total = sum(description.size for description in manifest.descriptions)
    _refuse(total > limits.MAX_DESCRIPTIONS_BYTES, f"the descriptions have {total:,} bytes")


def _check_chunks(artifact: ArtifactEntry) -> None:
    where = f"artifact {artifact.name}"
    _refuse(sum(chunk.size for chunk in artifact.chunks) != artifact.size, f"{where}: its chunks do not sum up")
    first = artifact.chunks[0].size
    for number, chunk in enumerate(artifact.chunks, start=1):
        _refuse(chunk.name != chunk_name(artifact.name, number), f"{where}: chunk {number} is called {chunk.name}")
        is_last = number == len(artifact.chunks)
        _refuse(not is_last and (chunk.size != first or chunk.size % artifact.block_size != 0),
                f"{where}: chunk {chunk.name} has an irregular size")  # fmt: skip
        _refuse(is_last and chunk.size > first, f"{where}: its last chunk is longer than the others")
    _refuse(artifact.blocks != blocks_name(artifact.name), f"{where}: its blocks file is called {artifact.blocks}")


def _is_time(text: str) -> bool:
    try:
        datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")  # noqa: DTZ007 - asked only whether there is such a time
    except ValueError:
        return False
    return True


def _refuse(is_wrong: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if is_wrong:
        raise MalformedBundle(f"{FILE_NAME}: {what}.")


def repository_of(reference: str) -> str:
    """The `host/path` of a normalised reference."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def chunk_name(artifact_name: str, number: int) -> str:
    """File name of a chunk; `number` counts from 1."""
    return f"{artifact_name}.{number:04d}"


def blocks_name(artifact_name: str) -> str:
    """File name of an artifact's block digests: `images.tar` has `images.blocks`."""
    return re.sub(r"\.tar$", "", artifact_name) + ".blocks"


def json_schema() -> dict[str, object]:
    """The JSON Schema of bundle.json, as published beside this file."""
    return msgspec.json.schema(BundleManifest)
