"""WWW-Authenticate by its grammar (CASES of httpwg/http-core #136 and go-containerregistry #728)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.shared.registry.challenge import Challenge, parse_challenges

_NVCR = "https://nvcr.io/proxy_auth?scope=repository:nvidia/tensorflow:pull,push"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param(
            ['Bearer realm="https://a/t",service="s",scope="repository:x:pull,push"'],
            [("bearer", {"realm": "https://a/t", "service": "s", "scope": "repository:x:pull,push"})],
            id="a comma inside quotes",
        ),
        pytest.param([f'Bearer realm="{_NVCR}"'], [("bearer", {"realm": _NVCR})], id="nvcr, no service"),
        pytest.param(
            ['Basic realm="x", Bearer realm="https://a/t",service="s"'],
            [("basic", {"realm": "x"}), ("bearer", {"realm": "https://a/t", "service": "s"})],
            id="Basic, then Bearer in one header",
        ),
        pytest.param(
            ['Basic realm="x"', 'Bearer realm="https://a/t"'],
            [("basic", {"realm": "x"}), ("bearer", {"realm": "https://a/t"})],
            id="two headers",
        ),
        pytest.param(
            [r'Basic realm="say \"hi\", \\ there"'], [("basic", {"realm": r'say "hi", \ there'})], id="escaped quotes"
        ),
        pytest.param(
            ["bearer REALM=abc , Service = def"],
            [("bearer", {"realm": "abc", "service": "def"})],
            id="spaces",
        ),
        pytest.param(["Negotiate, Basic realm=x"], [("negotiate", {}), ("basic", {"realm": "x"})], id="a scheme alone"),
        pytest.param(["NTLM TlRMTVNTUAAB==, Bearer realm=x"], [("ntlm", {}), ("bearer", {"realm": "x"})], id="token68"),
        pytest.param([", ,Basic ,realm=x, ,"], [("basic", {"realm": "x"})], id="empty list elements"),
        pytest.param(['Bearer realm="a",realm="b"'], [("bearer", {"realm": "a"})], id="the first of a name counts"),
        pytest.param(['Bearer realm="open'], [("bearer", {})], id="an open quote"),
        pytest.param(['Basic realm=x, Bearer realm="open'], [("basic", {"realm": "x"}), ("bearer", {})], id="half"),
        pytest.param([""], [], id="empty"),
        pytest.param([], [], id="none"),
        pytest.param(['"quoted"'], [], id="no scheme"),
    ],
)
def test_challenges_are_read_by_the_grammar(headers: list[str], expected: list[tuple[str, dict[str, str]]]) -> None:
    assert parse_challenges(headers) == [Challenge(scheme, parameters) for scheme, parameters in expected]


@given(st.text(alphabet='Basic earmlx=",\\ \t/:0', max_size=60))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    assert all(challenge.scheme for challenge in parse_challenges([text]))


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=40))
def test_a_quoted_value_comes_back_whole(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    (challenge, _) = parse_challenges([f'Bearer realm="{quoted}", Basic realm=x'])
    assert challenge.parameters == {"realm": value}
