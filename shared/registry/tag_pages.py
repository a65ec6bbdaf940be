"""Pages of a tag list: the tags of one, and where the next one is (RFC 8288 Link headers)."""

from __future__ import annotations

import re

import msgspec

from transload.shared.errors import RegistryProtocolError
from transload.shared.registry.answer import Answer
from transload.shared.registry.urls import origin_of, resolve, shown

_PARAMETER = r"[ \t]*;[ \t]*[\w!#$&+.^`|~*-]+(?:[ \t]*=[ \t]*(?:\"[^\"]*\"|[^\s;,\"]*))?"
_LINK = re.compile(rf"<([^>]*)>((?:{_PARAMETER})*)", re.ASCII)
_RELATION = re.compile(r';[ \t]*rel[ \t]*=[ \t]*(?:"([^"]*)"|([^\s;,"]*))', re.ASCII | re.IGNORECASE)


def tags_of(answer: Answer, raw: bytes) -> list[str]:
    """The tags of one page.

    Args:
        answer: The page's answer, for messages.
        raw: Its body.

    Raises:
        RegistryProtocolError: It is no list of tags.
    """
    try:
        fields = msgspec.json.decode(raw, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise answer.not_json(raw) from error
    tags = fields.get("tags")
    if tags is None:  # how registries write an empty list
        return []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise RegistryProtocolError(f"{shown(answer.url)} answers without a list of tags.", url=shown(answer.url))
    return tags


def next_page(answer: Answer, base_url: str) -> str | None:
    """The URL of the next page as the registry gives it, cursor and all; None on the last page.

    Args:
        answer: The page's answer.
        base_url: The registry's own origin, which the next page must have: the login goes there.

    Raises:
        RegistryProtocolError: The next page is on another host.
        InsecureRefused: It leaves https.
    """
    for header in answer.header_values("Link"):
        for target, parameters in _LINK.findall(header):
            relations = " ".join(quoted or plain for quoted, plain in _RELATION.findall(parameters))
            if "next" not in relations.lower().split():
                continue
            url = resolve(answer.url, target, "Link")
            if origin_of(url) != origin_of(base_url):
                raise RegistryProtocolError(
                    f"{shown(answer.url)} names the next page of tags on another host: {shown(url)}.", url=shown(url)
                )
            return url
    return None
