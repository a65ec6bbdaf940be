"""The published JSON Schema of bundle.json: `python -m transload.manifests.json_schema` prints it (`make schema`)."""

from __future__ import annotations

import json
import sys
from typing import Any

from transload.manifests import bundle_manifest

FILE_NAME = "bundle.schema.json"


def bundle_schema() -> bytes:
    """The schema as it lies beside FORMAT.md.

    It is generated from the types and narrowed to what the canonical form of this version is: every field is
    present, defaults or not, and `version` and `requires` have one value each.
    """
    schema: dict[str, Any] = bundle_manifest.json_schema()
    for definition in schema["$defs"].values():
        definition["required"] = sorted(definition["properties"])
        definition["description"] = definition["description"].partition("\n")[0]
        for field in definition["properties"].values():
            field.pop("default", None)
    manifest = schema["$defs"]["BundleManifest"]["properties"]
    manifest["version"] = {"const": bundle_manifest.VERSION}
    manifest["requires"] = {"const": []}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{bundle_manifest.FILE_NAME} of a transload bundle",
    }
    return json.dumps({**head, **schema}, indent=2).encode() + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(bundle_schema())
