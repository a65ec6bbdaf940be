"""What an image is called at its target: renaming rules, prefixes, and names on which two images would fall.

`nvcr.io/nvidia/pytorch:24.01-py3` pushed to `registry=HOST/PREFIX` becomes `HOST/PREFIX/nvidia/pytorch:24.01-py3`,
or `HOST/PREFIX/nvcr.io/nvidia/pytorch:24.01-py3` with `--keep-host`. Docker, archives and OCI layouts keep the
source's name. `--rename` is applied before all that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from transload.manifests.bundle_manifest import ImageEntry
from transload.shared.errors import (
    InvalidConfiguration,
    InvalidReference,
    NothingSelected,
    TargetNamesCollide,
    raise_all,
)
from transload.shared.image import Image
from transload.shared.references import Reference
from transload.shared.sinks.base import Wanted

_ANY_TAG = "x"  # completes a repository to a reference, so that the one tested parser checks it


@dataclass(frozen=True, slots=True)
class Rename:
    """One `--rename FROM=TO`: FROM is the beginning of a repository, in whole path components.

    Args:
        source: Components of FROM, with the host or without.
        target: Components of TO; without a host the source's host stays.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Rename:
        """Read `FROM=TO`.

        Raises:
            InvalidConfiguration: Text of another shape.
        """
        source, equals, target = text.partition("=")
        if not (equals and source.strip("/") and target.strip("/")) or "@" in text:
            raise InvalidConfiguration(
                f"Not a renaming: {text[:200]!r}.",
                hint="Write FROM=TO with whole path components, such as nvcr.io/nvidia=mirror/nvidia.",
            )
        return cls(tuple(source.strip("/").split("/")), tuple(target.strip("/").split("/")))

    def apply(self, repository: Reference) -> Reference | None:
        """The renamed reference, or None where the rule does not apply."""
        path = tuple(repository.path.split("/"))
        with_host = (repository.host, *path)
        if with_host[: len(self.source)] == self.source:
            rest = with_host[len(self.source) :]
        elif path[: len(self.source)] == self.source:
            rest = path[len(self.source) :]
        else:
            return None
        components = (*self.target, *rest)
        if not _is_host(components[0]):
            components = (repository.host, *components)
        text = "/".join(components)
        try:
            parsed = Reference.parse(f"{text}:{_ANY_TAG}")
        except InvalidReference as error:
            raise InvalidConfiguration(
                f"--rename {'/'.join(self.source)}={'/'.join(self.target)} makes {text!r} of "
                f"{repository.repository}, which is no repository name: {error.message}"
            ) from error
        return replace(parsed, tag=repository.tag, digest=repository.digest)


def rename(reference: Reference, rules: Iterable[Rename]) -> Reference:
    """Apply the most specific rule, once.

    Args:
        reference: A source name.
        rules: In any order; the one with the longest FROM that fits is applied.

    Raises:
        InvalidConfiguration: The result is no reference.
    """
    for rule in sorted(rules, key=lambda rule: len(rule.source), reverse=True):
        renamed = rule.apply(reference)
        if renamed is not None:
            return renamed
    return reference


def idle_rules(rules: Iterable[Rename], references: Sequence[Reference]) -> list[str]:
    """The `--rename` rules, as they were written, that fit no image at all."""
    return [
        f"{'/'.join(rule.source)}={'/'.join(rule.target)}"
        for rule in rules
        if all(rule.apply(reference) is None for reference in references)
    ]


def same_name(image: Image, name: Reference) -> str:
    """The target name of sinks that keep the source's name: with its tag, else with the delivered digest."""
    return str(name.with_digest(None if name.tag else image.digest))


def registry_name(image: Image, name: Reference, *, host: str, prefix: str, keep_host: bool) -> str:
    """The target name in a registry.

    Args:
        image: What is delivered.
        name: Its name, renamed already.
        host: The target registry.
        prefix: Path components that come first there, or empty.
        keep_host: Put the source's host in front of its path (a port's colon becomes a dash).

    Raises:
        InvalidConfiguration: The result is too long or otherwise no reference.
    """
    source_host = (name.host.lower().replace(":", "-").strip("[]"),) if keep_host else ()
    repository = "/".join(part for part in (host, prefix, *source_host, name.path) if part)
    version = f":{name.tag}" if name.tag else f"@{image.digest}"
    try:
        return str(Reference.parse(f"{repository}{version}"))
    except InvalidReference as error:
        raise InvalidConfiguration(
            f"{name} cannot be called {repository}{version} at the target: {error.message}",
            hint="Give it another name with --rename FROM=TO.",
        ) from error


def plan_targets(
    images: Sequence[Image], rules: Sequence[Rename], name_at: Callable[[Image, Reference], str]
) -> list[Wanted]:
    """Name every image at one target.

    Args:
        images: What is delivered.
        rules: The renamings.
        name_at: The target's way of naming, of an image and its renamed name.

    Raises:
        TargetNamesCollide: Two images fall on one name; each pair is named.
    """
    wanted = [Wanted(image, name_at(image, rename(image.name, rules))) for image in images]
    first: dict[str, Image] = {}
    collisions: list[TargetNamesCollide] = []
    for one in wanted:
        other = first.setdefault(one.target, one.image)
        if other is not one.image:
            collisions.append(
                TargetNamesCollide(
                    f"{other.name} and {one.image.name} would both be called {one.target} at the target.",
                    hint="Tell them apart with --rename FROM=TO or --keep-host, or choose one with --image.",
                    sources=[str(other.name), str(one.image.name)],
                    target=one.target,
                )
            )
    raise_all(collisions)
    return wanted


def select_entries(entries: Sequence[ImageEntry], asked: Sequence[str]) -> list[ImageEntry]:
    """The images that `--image` asks for.

    Args:
        entries: What the bundle holds.
        asked: Full references, or endings such as `pytorch:24.01-py3` that begin at a path component. Empty: all.

    Raises:
        NothingSelected: One of them matches nothing, the message lists what there is.
    """
    there = ", ".join(sorted(entry.name for entry in entries)) or "no image at all"
    faults = [
        NothingSelected(
            f"The bundle holds no image {text!r}. It holds: {there}.",
            hint="Name an image by its full reference, or by path:tag from any component on.",
            image=text,
        )
        for text in asked
        if not any(_is_asked(entry, text) for entry in entries)
    ]
    raise_all(faults)
    return [entry for entry in entries if not asked or any(_is_asked(entry, text) for text in asked)]


def _is_asked(entry: ImageEntry, text: str) -> bool:
    return any(name == text or name.endswith(f"/{text}") for name in (entry.name, entry.reference))


def _is_host(component: str) -> bool:
    return "." in component or ":" in component or component == "localhost"
