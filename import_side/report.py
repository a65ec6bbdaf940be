"""The record of an import: what was checked, by whom it was signed, what went where, which tags moved.

`transload import --report FILE` writes it and `--json` prints it. Its JSON Schema is published as
`manifests/import_report.schema.json`; `python -m transload.import_side.report` prints it.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from transload.manifests.bundle_manifest import BundleId, DigestText, FileName
from transload.shared.texts import well_formed_data

FORMAT: Final = "transload-import-report"
VERSION: Final = 1
SCHEMA_FILE_NAME = "import_report.schema.json"

Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
Hexadecimal = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class SignatureReport(_Part, frozen=True, kw_only=True):
    """Whose signature was accepted.

    Attributes:
        principal: The name in the trust file.
        fingerprint: Of the key.
        key_type: Of the key.
        file: The signature file.
        trust_file: The file that admits the key.
        valid_at: The time at which the key had to be valid.
    """

    principal: str
    fingerprint: str
    key_type: str
    file: str
    trust_file: str
    valid_at: Moment


class BundleReport(_Part, frozen=True, kw_only=True):
    """Which bundle it was.

    Attributes:
        folder: Where it lay.
        bundle_id: Its id.
        exporter: Who made it.
        destination: Whom it is for.
        sequence: Its number.
        created: When it was made.
        checksums: Digest of SHA256SUMS, which stands for the whole bundle.
        is_new: It had not been accepted before.
        missing_sequences: Numbers before it that never arrived, at most the first hundred.
        failed: References that the exporter was asked for and could not get.
    """

    folder: str
    bundle_id: BundleId
    exporter: str
    destination: str
    sequence: Count
    created: Moment
    checksums: DigestText
    is_new: bool
    missing_sequences: tuple[int, ...]
    failed: tuple[str, ...]


class FileCheck(_Part, frozen=True, kw_only=True):
    """A file of the bundle.

    Attributes:
        name: Its name.
        sha256: What SHA256SUMS says.
        checked_by: `sha256` for small files, read whole; `blocks` for chunks.
    """

    name: FileName
    sha256: Hexadecimal
    checked_by: Literal["sha256", "blocks"]


class ArtifactCheck(_Part, frozen=True, kw_only=True):
    """The blocks of one artifact.

    Attributes:
        name: Its name.
        blocks: How many blocks it has.
        blocks_verified: How many were read and had their digest; with --verify-first all of them.
    """

    name: FileName
    blocks: Count
    blocks_verified: Count


class BlobCheck(_Part, frozen=True, kw_only=True):
    """One blob.

    Attributes:
        digest: Its digest.
        size: Its size in bytes.
        verified: It was read and had this digest; what is at the target already is not read.
    """

    digest: DigestText
    size: Count
    verified: bool


class DeliveryReport(_Part, frozen=True, kw_only=True):
    """What became of one image at one target.

    Attributes:
        sink: Which target, such as `registry=HOST/PREFIX`.
        image: Its name in the bundle.
        target: Its name at the target.
        digest: The digest that is carried.
        source_digest: What the reference resolved to at its source.
        action: `delivered`, `already-there`, or `kept` where the target's name was left on another image.
        previous: What the name stood for before, or stands for still if it was kept: a digest, at Docker an image id.
        image_id: The id by which Docker calls what the name stands for now; null at other targets.
        bytes_sent: Bytes that went to the target.
        notes: Remarks.
    """

    sink: str
    image: str
    target: str
    digest: DigestText
    source_digest: DigestText
    action: Literal["delivered", "already-there", "kept", "would-deliver"]
    previous: str | None
    image_id: str | None
    bytes_sent: Count
    notes: tuple[str, ...]


class FailureReport(_Part, frozen=True, kw_only=True):
    """An image that one target did not get.

    Attributes:
        sink: Which target.
        image: Its name in the bundle.
        target: Its name at the target.
        digest: What it should have got.
        error: The error's name.
        exit_code: The error's exit code.
        message: What happened.
        hint: What to do.
    """

    sink: str
    image: str
    target: str
    digest: DigestText
    error: str
    exit_code: Count
    message: str
    hint: str


class ImportReport(_Part, frozen=True, kw_only=True):
    """The whole record.

    Attributes:
        format: Always `transload-import-report`.
        version: The format's version.
        tool: Name and version of the importer.
        started: When the import began.
        finished: When it ended.
        exit_code: How it ended.
        is_dry_run: Nothing was delivered or remembered.
        signature: Whose signature was accepted.
        bundle: Which bundle it was.
        files: Every file that SHA256SUMS names.
        artifacts: Every artifact, with its blocks.
        blobs: Every blob.
        deliveries: What went where.
        failures: What did not.
        notes: Remarks.
    """

    format: Literal["transload-import-report"] = FORMAT
    version: Literal[1] = VERSION
    tool: str
    started: Moment
    finished: Moment
    exit_code: Count
    is_dry_run: bool
    signature: SignatureReport
    bundle: BundleReport
    files: tuple[FileCheck, ...]
    artifacts: tuple[ArtifactCheck, ...]
    blobs: tuple[BlobCheck, ...]
    deliveries: tuple[DeliveryReport, ...]
    failures: tuple[FailureReport, ...]
    notes: tuple[str, ...]

    @property
    def moved(self) -> tuple[DeliveryReport, ...]:
        """Deliveries that moved a name from another image."""
        return tuple(one for one in self.deliveries if one.action == "delivered" and one.previous)


def encode(report: ImportReport) -> bytes:
    """The report as a file: sorted keys, two spaces of indentation."""
    plain = well_formed_data(msgspec.to_builtins(report))
    return msgspec.json.format(msgspec.json.encode(plain, order="sorted"), indent=2) + b"\n"


def schema() -> bytes:
    """The JSON Schema as it is published."""
    document: dict[str, Any] = msgspec.json.schema(ImportReport)
    for definition in document["$defs"].values():
        definition["required"] = sorted(definition["properties"])
        definition["description"] = definition["description"].partition("\n")[0]
        for field in definition["properties"].values():
            field.pop("default", None)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "The record of a transload import"}
    return json.dumps({**head, **document}, indent=2).encode() + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(schema())
