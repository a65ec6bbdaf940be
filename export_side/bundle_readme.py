"""README.txt of a bundle: how to verify and load it by hand, with stock tools alone.

Everything in it is plain ASCII out of names that the format restricts, so that every line can be pasted into a shell.
"""

from __future__ import annotations

import re

from transload.manifests.bundle_manifest import IMAGES_ARTIFACT, BundleManifest, ImageEntry
from transload.shared.image import DOCKER_MANIFEST, INDEX_TYPES
from transload.shared.sizes import format_size

README_NAME = "README.txt"

_TEMPLATE = """\
transload bundle {bundle_id}
{underline}
Made {created} by {tool} for destination "{destination}".
It holds {image_count} in {size}, cut into {chunk_count}.

Every command is for this folder. Say first where the allowed_signers file is, which says whose signature counts and
must have come to this side on another way than this bundle, and where step 3 may put files: not on this medium.

    TRUST=/path/to/allowed_signers
    WORK=/var/tmp/{bundle_id}
    mkdir -p "$WORK"

With transload on this side, two commands do everything below and more:

    transload verify . --trust "$TRUST"
    transload import . --trust "$TRUST" --to docker

By hand, without transload:

1. Verify. The first command prints the NAME for the second.

    ssh-keygen -Y find-principals -f "$TRUST" -s SHA256SUMS.sig
    ssh-keygen -Y verify -n transload-bundle -f "$TRUST" -I NAME -s SHA256SUMS.sig < SHA256SUMS
    sha256sum --check --strict SHA256SUMS

   Use nothing before the second has said "Good" and the third "OK" for every file, this one too.

2. Load everything into Docker.

    cat {artifact}.[0-9]* | docker load

   Docker first copies the {exact_size} bytes into its temporary folder, then unpacks them into its storage, where they
   take two to four times as much. Docker before 23 cannot read zstd-compressed layers; transload import can.

3. Or take single images with skopeo. Joining the chunks takes {exact_size} bytes, and each image its own size again.

    cat {artifact}.[0-9]* > "$WORK/{artifact}"

{skopeo}{untagged}
   In place of the last part, --preserve-digests docker://REGISTRY/PATH:TAG pushes to a registry with the digest below,
   and oci:FOLDER:TAG makes an OCI layout.

Images
------
{images}
{failed}{descriptions}"""


def bundle_readme(manifest: BundleManifest) -> bytes:
    """The text of README.txt, which depends on bundle.json alone.

    Args:
        manifest: The bundle's manifest.
    """
    artifact = next(one for one in manifest.artifacts if one.name == IMAGES_ARTIFACT)
    text = _TEMPLATE.format(
        bundle_id=manifest.bundle_id,
        underline="=" * (len(manifest.bundle_id) + 17),
        created=manifest.created,
        tool=manifest.tool,
        destination=manifest.destination,
        image_count=_count(len(manifest.images), "image"),
        size=format_size(artifact.size),
        exact_size=f"{artifact.size:,}",
        chunk_count=_count(len(artifact.chunks), "chunk file"),
        artifact=artifact.name,
        skopeo="".join(_skopeo(image, artifact.name) for image in manifest.images),
        untagged=_untagged(manifest),
        images="".join(_image(image) for image in manifest.images),
        failed=_failed(manifest),
        descriptions=_descriptions(manifest),
    )
    return text.encode("ascii", "backslashreplace")


def archive_reference(image: ImageEntry) -> str | None:
    """What an image is called inside the archive, or None if it was asked for by digest alone."""
    name = image.name.partition("@")[0]
    return name if ":" in name.rpartition("/")[2] else None


def _skopeo(image: ImageEntry, artifact: str) -> str:
    name = archive_reference(image)
    if name is None:
        return ""
    target = re.sub(r"[^A-Za-z0-9.-]+", "_", name)
    source = f"oci-archive:$WORK/{artifact}:{name}"
    return f'    skopeo copy{_platform_options(image)} "{source}" "dir:$WORK/{target}"\n'


def _untagged(manifest: BundleManifest) -> str:
    names = [image.name for image in manifest.images if archive_reference(image) is None]
    if not names:
        return ""
    lines = "".join(f"   - {name}\n" for name in names)
    intro = "   These have no tag, so the archive has no name for them; docker load shows an image ID for each:\n"
    return f"\n{intro}{lines}"


def _platform_options(image: ImageEntry) -> str:
    """What skopeo must be told, which otherwise looks for its own machine's platform in an index."""
    if image.platform is None and image.media_type in INDEX_TYPES:
        return " --all"
    if image.media_type != DOCKER_MANIFEST or image.platform is None:
        return ""
    # Found through an index of one (archive_layout.oci_door).
    system, architecture, *variant = image.platform.split("/")
    options = {"--override-os": system, "--override-arch": architecture, "--override-variant": "".join(variant)}
    return "".join(f" {option} {value}" for option, value in options.items() if value)


def _image(image: ImageEntry) -> str:
    platform = image.platform or "all platforms"
    renamed = "" if image.name == image.reference else f"\n    renamed from {image.reference}"
    return f"{image.name} ({platform}){renamed}\n    {image.digest}\n"


def _failed(manifest: BundleManifest) -> str:
    if not manifest.failed:
        return ""
    lines = [f"{entry.reference}: {entry.error}\n" for entry in manifest.failed]
    return "\nAsked for and not in here\n-------------------------\n" + "".join(lines)


def _descriptions(manifest: BundleManifest) -> str:
    if not manifest.descriptions:
        return ""
    lines = [f"{entry.name}: {entry.repository}\n" for entry in manifest.descriptions]
    return "\nDescriptions and licences\n-------------------------\n" + "".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
