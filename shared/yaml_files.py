"""YAML that people read and edit: plain mappings, lists and text, bounded, with no surprises.

Every scalar is text, whatever it looks like: a tag `1.10`, `2024-01-01`, `on`, `0x10`, `1e3` or `~` stays what was
written. Who wants a number or a boolean converts it from text by its type (msgspec's lax conversion). Anchors,
aliases, tags, duplicate keys and further documents are refused, so a file is what it shows.

PyYAML is used for its event stream only, through its C parser and emitter where they are there: no constructor or
resolver of PyYAML ever runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import yaml

from transload.shared import limits
from transload.shared.errors import InvalidConfiguration, TransloadError
from transload.shared.texts import well_formed

_Loader: type = getattr(yaml, "CLoader", yaml.Loader)
_Dumper: type = getattr(yaml, "CDumper", yaml.Dumper)

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@:+-]*", re.ASCII)
"""Text that is written without quotes, unless another YAML reader would take it for something else."""

_MISREAD = re.compile(r"y|n|yes|no|on|off|true|false|null|nan|inf", re.ASCII | re.IGNORECASE)
"""What YAML 1.1 or 1.2 readers take for a boolean, null or number although it begins with a letter."""

_NO_FOLDING_WIDTH = 1 << 20


def load_yaml(
    raw: bytes,
    where: str,
    *,
    raising: type[TransloadError] = InvalidConfiguration,
    ignored_tags: Collection[str] = (),
) -> object:
    """Read one YAML document.

    Args:
        raw: The file's bytes; the caller has bounded them.
        where: The file's name, for messages.
        raising: The class of the error for what cannot be read.
        ignored_tags: Tags, in full, whose values are read as if they had none; every other tag is refused.

    Returns:
        Dictionaries with text keys, lists and text. Scalars stay text, an empty value is the empty text, and a
        file without any document is None.

    Raises:
        TransloadError: Of the class `raising`: not UTF-8, not YAML, or a feature that is not accepted here;
            the message names line and column.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise raising(f"{where}, line {line}: not UTF-8 text.", hint="Save the file as UTF-8.", file=where) from error
    builder = _Builder(where, raising, ignored_tags)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            builder.take(event)
    except (yaml.YAMLError, RecursionError) as error:
        raise _syntax_error(error, where, raising) from error
    return builder.document


def dump_yaml(value: object) -> bytes:
    """Write plain data so that this module and every other YAML reader see the same text.

    Args:
        value: Dictionaries with text keys, lists, tuples, text, integers and booleans. Order is kept.

    Returns:
        UTF-8, block style, one document without markers.

    Raises:
        TypeError: Anything else, None included: leave such a field out.
    """
    events = [
        yaml.StreamStartEvent(encoding=None),
        yaml.DocumentStartEvent(explicit=False),
        *_events(value),
        yaml.DocumentEndEvent(explicit=False),
        yaml.StreamEndEvent(),
    ]
    text: str = yaml.emit(events, Dumper=_Dumper, allow_unicode=True, width=_NO_FOLDING_WIDTH)
    return text.encode("utf-8")


class _Builder:
    """Makes data of parser events, without recursion."""

    def __init__(self, where: str, raising: type[TransloadError], ignored_tags: Collection[str]) -> None:
        self.document: object = None
        self._where, self._raising, self._ignored_tags = where, raising, ignored_tags
        self._open: list[dict[str, object] | list[object]] = []
        self._keys: list[str | None] = []
        self._documents = self._nodes = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._refusal(event, "a second document begins; one is expected")
        elif isinstance(event, yaml.AliasEvent):
            raise self._refusal(event, f"the alias *{event.anchor} is not accepted; write the value out")
        elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            self._take_node(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            self._keys.pop()

    def _take_node(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        self._nodes += 1
        if self._nodes > limits.MAX_YAML_NODES:
            raise self._refusal(event, f"more than {limits.MAX_YAML_NODES:,} values")
        if event.anchor is not None:
            raise self._refusal(event, f"the anchor &{event.anchor} is not accepted")
        if event.tag is not None and event.tag not in self._ignored_tags:
            raise self._refusal(event, f"the tag {event.tag} is not accepted")
        if isinstance(event, yaml.ScalarEvent):
            self._place(event, event.value)
            return
        if len(self._open) >= limits.MAX_YAML_DEPTH:
            raise self._refusal(event, f"nested more than {limits.MAX_YAML_DEPTH} deep")
        container: dict[str, object] | list[object] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._place(event, container)
        self._open.append(container)
        self._keys.append(None)

    def _place(self, event: yaml.NodeEvent, value: object) -> None:
        if not self._open:
            self.document = value
            return
        container = self._open[-1]
        if isinstance(container, list):
            container.append(value)
            return
        key = self._keys[-1]
        if key is not None:
            container[key] = value
            self._keys[-1] = None
        elif not isinstance(value, str):
            raise self._refusal(event, "a key must be text, not a list or mapping")
        elif value in container:
            raise self._refusal(event, f"the key {value[:100]!r} comes twice")
        else:
            self._keys[-1] = value

    def _refusal(self, event: yaml.Event, what: str) -> TransloadError:
        return _error_at(event.start_mark, self._where, what, self._raising)


def _syntax_error(error: yaml.YAMLError | RecursionError, where: str, raising: type[TransloadError]) -> TransloadError:
    if isinstance(error, yaml.MarkedYAMLError):
        what = " ".join(part for part in (error.context, error.problem) if part)
        return _error_at(error.problem_mark or error.context_mark, where, what or "not YAML", raising)
    if isinstance(error, yaml.reader.ReaderError):
        return raising(f"{where}: {error.reason} (character {error.position + 1}).", file=where)
    return raising(f"{where}: not YAML ({type(error).__name__}).", file=where)


def _error_at(mark: Any, where: str, what: str, raising: type[TransloadError]) -> TransloadError:
    if mark is None:
        return raising(f"{where}: {what}.", file=where)
    line, column = mark.line + 1, mark.column + 1
    return raising(f"{where}, line {line}, column {column}: {what}.", file=where, line=line, column=column)


def _events(value: object) -> Iterator[yaml.Event]:
    if isinstance(value, Mapping):
        yield yaml.MappingStartEvent(None, None, implicit=True, flow_style=not value)
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"YAML keys are text here, not {type(key).__name__}")
            yield _scalar(key)
            yield from _events(item)
        yield yaml.MappingEndEvent()
    elif isinstance(value, str | int):
        yield _scalar(value)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=not value)
        for item in value:
            yield from _events(item)
        yield yaml.SequenceEndEvent()
    else:
        raise TypeError(f"{type(value).__name__} is not written as YAML here")


def _scalar(value: str | int) -> yaml.ScalarEvent:
    if not isinstance(value, str):
        return yaml.ScalarEvent(None, None, (True, True), str(value).lower(), style="")
    value = well_formed(value)
    if _PLAIN.fullmatch(value) and not value.endswith(":") and not _MISREAD.fullmatch(value):
        text, style = value, ""
    else:
        # Single quotes fold line breaks and cannot show control characters.
        text, style = value, "'" if value.isprintable() else '"'
    return yaml.ScalarEvent(None, None, (True, True), text, style=style)
