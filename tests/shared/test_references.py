from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.shared.digests import Digest
from transload.shared.errors import InvalidReference
from transload.shared.references import Reference, is_tag

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("ubuntu", "docker.io/library/ubuntu:latest"),
        ("ubuntu:22.04", "docker.io/library/ubuntu:22.04"),
        ("nvidia/cuda:12.4.1-devel-ubuntu22.04", "docker.io/nvidia/cuda:12.4.1-devel-ubuntu22.04"),
        ("docker.io/ubuntu", "docker.io/library/ubuntu:latest"),
        ("index.docker.io/library/ubuntu:1", "docker.io/library/ubuntu:1"),
        ("nvcr.io/nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
        ("nvcr.io/org/team/deep/er/name:29Oct2020", "nvcr.io/org/team/deep/er/name:29Oct2020"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/app:1", "localhost:5000/app:1"),
        ("127.0.0.1:5000/a/b:v0.9.2", "127.0.0.1:5000/a/b:v0.9.2"),
        ("[::1]:5000/app:1", "[::1]:5000/app:1"),
        ("HOST/app:1", "HOST/app:1"),
        (f"reg.example/app@{DIGEST}", f"reg.example/app@{DIGEST}"),
        (f"reg.example/app:1.10@{DIGEST}", f"reg.example/app:1.10@{DIGEST}"),
        ("reg.example/a__b/c-d--e/f.g_h:_x.Y-", "reg.example/a__b/c-d--e/f.g_h:_x.Y-"),
        ("reg.example:443/library/x:latest", "reg.example:443/library/x:latest"),
    ],
)
def test_references_are_normalised_as_docker_does(text: str, normalised: str) -> None:
    reference = Reference.parse(text)
    assert str(reference) == normalised
    assert Reference.parse(normalised) == reference


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "path component"), (":tag", ""), ("app:", "tag"), ("app:a b", "tag"), ("app:.hidden", "tag"),
        ("app:" + "x" * 129, "tag"), ("reg.example/App:1", "upper-case"), ("reg.example//app", "path component ''"),
        ("reg.example/app/", "path component ''"), ("reg.example/../app", "'..'"), ("reg.example/a_.b", "'a_.b'"),
        ("reg.example/-a", "'-a'"), ("bad_host.com:x/app", "host"), ("reg.example:port/app", "host"),
        ("reg.example:65536/app", "host"), ("reg.example:0/app", "host"),
        ("reg.example/app@", "digest"), ("reg.example/app@sha256:ab", "digest"), (f"reg.example/app@{DIGEST}0", ""),
        ("reg.example/app@md5:" + "0" * 32, "md5"), ("https://reg.example/app", "begins with https://"),
        ("docker://reg.example/app:1", "begins with docker://"), ("reg.example/app:1\n", "tag"),
        ("reg.example/a\nb", "path component"), ("reg.example/" + "a" * 250, "longer than 255"),
        ("reg.example/\u0430pp", "path component"), ("$(id)", "path component"), ("reg.example/app:1:2", ""),
    ],
)  # fmt: skip
def test_what_is_no_reference_says_which_part(text: str, what: str) -> None:
    with pytest.raises(InvalidReference) as caught:
        Reference.parse(text)
    assert what in caught.value.message
    assert caught.value.hint


component = st.from_regex(r"[a-z0-9]{1,8}([._-][a-z0-9]{1,4})?", fullmatch=True)
tag = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,30}", fullmatch=True)


@given(st.lists(component, min_size=1, max_size=4), tag, st.booleans())
def test_every_legal_reference_survives(parts: list[str], a_tag: str, with_digest: bool) -> None:
    text = f"reg.example:5000/{'/'.join(parts)}:{a_tag}" + (f"@{DIGEST}" if with_digest else "")
    reference = Reference.parse(text)
    assert str(reference) == text
    assert (reference.host, reference.path, reference.tag) == ("reg.example:5000", "/".join(parts), a_tag)
    assert reference.version == (DIGEST if with_digest else a_tag)


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    try:
        reference = Reference.parse(text)
    except InvalidReference:
        return
    assert Reference.parse(str(reference)) == reference


def test_parts_are_replaced() -> None:
    reference = Reference.parse(f"reg.example/a/b:1@{DIGEST}")
    assert reference.repository == "reg.example/a/b"
    assert str(reference.with_digest(None)) == "reg.example/a/b:1"
    assert str(reference.with_tag("2")) == "reg.example/a/b:2"
    other = Digest.of(b"x")
    assert reference.with_digest(other).version == str(other)


@pytest.mark.parametrize(("text", "legal"), [("1.10", True), ("_x", True), ("-x", False), ("", False), ("a/b", False),
                                             ("a\n", False), ("x" * 128, True), ("x" * 129, False)])  # fmt: skip
def test_tags(text: str, legal: bool) -> None:
    assert is_tag(text) is legal
