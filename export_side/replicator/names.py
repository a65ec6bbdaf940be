"""The names of the old tool: of its files, and of images at the other registry. Scripts rely on them."""

from __future__ import annotations

from dataclasses import dataclass

from transload.shared.references import Reference


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """One image that the run is about.

    Args:
        name: What the old tool called it: `nvidia/tensorflow`, or the name in the file of external images.
        tag: Its tag.
        reference: Where it is.
        is_external: It comes from the file of external images, not from NGC.
    """

    name: str
    tag: str
    reference: Reference
    is_external: bool = False

    @property
    def repository_url(self) -> str:
        """Where it is without its tag, as the old tool wrote it: `nvcr.io/nvidia/tensorflow`; the key in state.yml."""
        return self.name if self.is_external else self.reference.repository

    @property
    def url(self) -> str:
        """`nvcr.io/nvidia/tensorflow:19.06-py3`."""
        return f"{self.repository_url}:{self.tag}"

    @property
    def tar_name(self) -> str:
        """`docker_image_nvcr.io%%nvidia%%tensorflow:19.06-py3.tar`."""
        return f"docker_image_{self.url}.tar".replace("/", "%%")

    @property
    def sif_name(self) -> str:
        """`nvcr.io_nvidia_tensorflow:19.06-py3.sif`."""
        return f"{self.url}.sif".replace("/", "_")

    @property
    def step(self) -> str:
        """What it is called in reports of progress."""
        return f"{self.name}:{self.tag}"

    def target(self, registry_url: str) -> str:
        """Its reference at another registry, `<registry-url>/<image>:<tag>`.

        Raises:
            InvalidReference: No registry could call it so.
        """
        path = self.name.lower().replace(":", "-") if self.is_external else self.name  # a port is no path component
        return str(Reference.parse(f"{registry_url}/{path}:{self.tag}"))


def description_name(name: str) -> str:
    """The file of an image's description: `description_nvidia%%tensorflow.md`."""
    return f"description_{name.replace('/', '%%')}.md"
