"""The images that are moved, and what there is to fetch of them."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass

IMAGES = ("svc/tf:1.0", "svc/tf:1.1", "svc/tf:2.0", "svc/torch:1.0")
_ACCEPT = ", ".join((
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
))  # fmt: skip


@dataclass(frozen=True)
class Blob:
    """Something to fetch.

    Attributes:
        url: Where from.
        digest: What it must have, in hexadecimal.
        size_bytes: Its size.
    """

    url: str
    digest: str
    size_bytes: int


def unique_blobs(host: str, images: tuple[str, ...] = IMAGES) -> list[Blob]:
    """Every config and layer of the images once.

    Args:
        host: A registry on plain http.
        images: `path:tag` of each.
    """
    found: dict[str, Blob] = {}
    for image in images:
        path, _, tag = image.partition(":")
        request = urllib.request.Request(f"http://{host}/v2/{path}/manifests/{tag}", headers={"Accept": _ACCEPT})
        with urllib.request.urlopen(request) as answer:
            manifest = json.load(answer)
        for descriptor in (manifest["config"], *manifest["layers"]):
            digest = descriptor["digest"]
            url = f"http://{host}/v2/{path}/blobs/{digest}"
            found.setdefault(digest, Blob(url, digest.removeprefix("sha256:"), descriptor["size"]))
    return list(found.values())
