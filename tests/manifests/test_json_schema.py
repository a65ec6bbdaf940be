"""The published schema of bundle.json is the code's, and says yes and no where the code does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from doubles.bundle_factory import BundleDraft, tiny_images
from transload.manifests import bundle_manifest, json_schema
from transload.shared.errors import MalformedBundle, UnsupportedVersion

PUBLISHED = Path(json_schema.__file__).with_name(json_schema.FILE_NAME)


def real_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(bundle_manifest.encode(BundleDraft(tiny_images()).manifest))
    return document


def validate(document: dict[str, Any]) -> None:
    jsonschema.validate(document, json.loads(PUBLISHED.read_bytes()))


def test_the_published_schema_is_generated_from_the_code() -> None:
    assert PUBLISHED.read_bytes() == json_schema.bundle_schema(), "run `make schema`"


def test_a_real_bundle_validates() -> None:
    validate(real_document())


def test_the_schema_itself_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(PUBLISHED.read_bytes()))


@pytest.mark.parametrize("field", sorted(real_document()))
def test_every_field_is_required(field: str) -> None:
    document = real_document()
    del document[field]
    with pytest.raises(jsonschema.ValidationError):
        validate(document)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "other"),
        ("version", 2),
        ("requires", ["default-1-20240102-0123"]),
        ("sequence", 0),
        ("sequence", 1.5),
        ("destination", "Upper"),
        ("destination", "a" * 25),
        ("destination", "default\n"),
        ("bundle_id", "ab\n"),
        ("exporter", "0123"),
        ("exporter", "0" * 32 + "\n"),
        ("created", "2024-01-02T03:04:05Z\n"),
        ("created", "2024-01-02 03:04:05"),
        ("artifacts", []),
        ("later", True),
    ],
)
def test_what_the_code_refuses_the_schema_refuses(field: str, value: object) -> None:
    document = {**real_document(), field: value}
    with pytest.raises(jsonschema.ValidationError):
        validate(document)
    with pytest.raises((MalformedBundle, UnsupportedVersion)):
        bundle_manifest.decode(json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n")
