"""Listing tags of a registry that misbehaves: pages, links, circles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from doubles import image_factory
from doubles.clients import client_of
from doubles.registry_faults import Fault, Reply, Request, Serve, answer, with_headers
from doubles.scripted_registry import ScriptedRegistry, scripted_registry
from transload.shared import limits
from transload.shared.errors import RegistryProtocolError

_IMAGE = image_factory.image("x.example/team/app:1", [image_factory.noise_layer("tags")])


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as running:
        running.put(_IMAGE)
        yield running


@pytest.fixture
def tagged(registry: ScriptedRegistry) -> ScriptedRegistry:
    tags = registry.repositories["team/app"].tags
    tags.clear()
    tags.update(dict.fromkeys(("a", "b", "c", "d", "e"), str(_IMAGE.image.digest)))
    registry.page_size = 2
    return registry


def test_all_pages_are_followed_with_their_opaque_cursors(tagged: ScriptedRegistry) -> None:
    with client_of(tagged) as client:
        assert client.list_tags("team/app") == ["a", "b", "c", "d", "e"]
    queries = [one.query for one in tagged.asked("GET", "/tags/")]
    assert queries == ["", "cursor=Mg%3D%3D", "cursor=NA%3D%3D"]


@pytest.mark.parametrize(
    "link",
    [
        '<{url}/v2/team/app/tags/list?cursor=NA%3D%3D>; rel="next"',
        "</v2/team/app/tags/list?cursor=NA%3D%3D>;rel=next",
        '<list?cursor=NA%3D%3D>; title="a, <b>; rel=x"; REL="prev next"',
        '</other>; rel="prev", </v2/team/app/tags/list?cursor=NA%3D%3D>; rel="next"',
    ],
)
def test_links_are_read_by_their_grammar(tagged: ScriptedRegistry, link: str) -> None:
    tagged.faults.append(Fault("GET", "/tags/", with_headers(link=link.format(url=tagged.url))))
    with client_of(tagged) as client:
        assert client.list_tags("team/app") == ["a", "b", "e"]


def test_pages_that_go_in_a_circle_are_found(tagged: ScriptedRegistry) -> None:
    itself = with_headers(link='</v2/team/app/tags/list>; rel="next"')
    tagged.faults.append(Fault("GET", "/tags/", itself, times=None))
    with client_of(tagged) as client, pytest.raises(RegistryProtocolError, match="circle"):
        client.list_tags("team/app")
    assert len(tagged.asked("GET", "/tags/")) == 1


def test_pages_that_never_end_are_found(tagged: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TAG_PAGES", 20)

    numbers = iter(range(100))

    def onward(_request: Request, serve: Serve) -> Reply:
        reply = serve()
        return reply.having(link=f'<?page={next(numbers)}>; rel="next"')

    tagged.faults.append(Fault("GET", "/tags/", onward, times=None))
    with client_of(tagged) as client, pytest.raises(RegistryProtocolError, match="do not end"):
        client.list_tags("team/app")
    assert len(tagged.asked("GET", "/tags/")) == 20


def test_a_next_page_on_another_host_is_refused(tagged: ScriptedRegistry) -> None:
    tagged.faults.append(Fault("GET", "/tags/", with_headers(link='<http://127.0.0.1:9/x?secret=1>; rel="next"')))
    with client_of(tagged) as client, pytest.raises(RegistryProtocolError, match="another host") as caught:
        client.list_tags("team/app")
    assert "secret" not in str(caught.value.as_json())


def test_no_tags_are_an_empty_list(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/tags/", answer(200, b'{"name": "team/app", "tags": null}')))
    with client_of(registry) as client:
        assert client.list_tags("team/app") == []


@pytest.mark.parametrize("body", [b"[]", b'{"tags": {}}', b'{"tags": [1]}', b"nonsense"])
def test_what_is_no_list_of_tags_is_refused(registry: ScriptedRegistry, body: bytes) -> None:
    registry.faults.append(Fault("GET", "/tags/", answer(200, body)))
    with client_of(registry) as client, pytest.raises(RegistryProtocolError):
        client.list_tags("team/app")
