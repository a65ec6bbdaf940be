from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from transload.shared import limits, yaml_files
from transload.shared.errors import InvalidConfiguration, InvalidImageList, StateUnreadable, TransloadError
from transload.shared.yaml_files import dump_yaml, load_yaml

LOOKS_LIKE_SOMETHING_ELSE = [
    "1.10", "2024-01-01", "on", "off", "yes", "no", "y", "N", "true", "False", "null", "Null", "~", "", "0x10", "0o17",
    "017", "1e3", "1E3", "1_000", "1:30:00", ".inf", "nan", "-", "=", "<<", "+1", "12e03", "- a", "a: b", "a #b", "#c",
    "*alias", "&anchor", "!tag", "{a}", "[b]", "%d", "@x", "`x", "|", ">", "'", '"', "a:", ":a", " lead", "trail ",
    "two\nlines", "\n", "\t", "tab\tin", "\x85", "\u2028", "\ufeff", "\x1b[31m", "\U0001f600", "...", "---", "? x",
]  # fmt: skip

text = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(LOOKS_LIKE_SOMETHING_ELSE)
documents = st.recursive(
    text, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)


@given(documents)
def test_what_is_written_is_read_again(document: object) -> None:
    assert load_yaml(dump_yaml(document), "f.yml") == document


@given(documents)
def test_other_readers_see_the_same_text(document: object) -> None:
    """PyYAML's own safe loader resolves YAML 1.1 types: our quoting leaves it nothing to resolve."""
    assert yaml.safe_load(dump_yaml(document)) == document


@pytest.mark.parametrize("value", LOOKS_LIKE_SOMETHING_ELSE)
def test_awkward_text_survives_as_key_and_value(value: str) -> None:
    document = {value: [value, {"tag": value}]}
    assert load_yaml(dump_yaml(document), "f.yml") == document
    assert yaml.safe_load(dump_yaml(document)) == document


@pytest.mark.parametrize(
    "written", ["1.10", "2024-01-01", "on", "0x10", "1e3", "~", "null", "1:30", "=", "true", "017"]
)
def test_unquoted_scalars_stay_what_was_written(written: str) -> None:
    assert load_yaml(f"tags: [{written}]\n{written}: x".encode(), "f.yml") == {"tags": [written], written: "x"}


@pytest.mark.parametrize("word", ["null", "y", "n", "on", "off", "yes", "no", "true", "false", "nan", "Inf", "1e3"])
def test_words_that_other_readers_resolve_are_quoted(word: str) -> None:
    assert dump_yaml([word]) == f"- '{word}'\n".encode()


def test_plain_text_is_readable() -> None:
    document = {"reference": "nvcr.io/nvidia/pytorch:24.01-py3", "digest": "sha256:ab", "n": 3, "empty": {}, "ok": True}
    assert dump_yaml(document) == (
        b"reference: nvcr.io/nvidia/pytorch:24.01-py3\ndigest: sha256:ab\n'n': 3\nempty: {}\nok: true\n"
    )


def test_an_empty_value_is_empty_text_and_an_empty_file_is_none() -> None:
    assert load_yaml(b"platform:\n", "f.yml") == {"platform": ""}
    assert load_yaml(b"# only a comment\n", "f.yml") is None


def test_a_byte_order_mark_is_skipped() -> None:
    assert load_yaml(b"\xef\xbb\xbfa: b\n", "f.yml") == {"a": "b"}


@pytest.mark.parametrize(
    ("raw", "place", "what"),
    [
        (b"a: 1\nb: 2\na: 3\n", "line 3, column 1", "'a' comes twice"),
        (b"x:\n  - a: 1\n    a: 2\n", "line 3, column 5", "'a' comes twice"),
        (b"a: &x 1\n", "line 1, column 4", "anchor &x"),
        (b"a: *x\n", "line 1, column 4", "alias *x"),
        (b"a: !!python/object/apply:os.system [id]\n", "line 1, column 4", "tag tag:yaml.org,2002:python/object/apply"),
        (b"a: !!str 1\n", "line 1, column 4", "tag tag:yaml.org,2002:str"),
        (b"a: b\n---\nc: d\n", "line 2, column 1", "second document"),
        (b"? [a, b]\n: c\n", "line 1, column 3", "key must be text"),
        (b"? {a: b}\n: c\n", "line 1, column 3", "key must be text"),
        (b"a: b: c\n", "line 1, column 5", "mapping values are not allowed"),
        (b"a:\n\t- b\n", "line 2, column 1", "cannot start any token"),
        (b"[a, b\n", "line 2, column 1", "did not find expected"),
        (b"ok: 1\nbad: \xff\n", "line 2", "not UTF-8"),
        (b"a: \x00\n", "f.yml", "control characters"),
        (b"[" * 100 + b"]" * 100, "line 1, column 33", "nested more than 32 deep"),
    ],
)
def test_what_is_refused_is_named_with_its_place(raw: bytes, place: str, what: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        load_yaml(raw, "f.yml")
    assert "f.yml" in caught.value.message
    assert place in caught.value.message
    assert what in caught.value.message


def test_an_alias_bomb_ends_at_its_first_anchor() -> None:
    bomb = b"a: &a [x, x]\n" + b"".join(b"%c: &%c [*%c, *%c]\n" % (98 + i, 98 + i, 97 + i, 97 + i) for i in range(20))
    with pytest.raises(InvalidConfiguration, match="line 1, column 4"):
        load_yaml(bomb, "bomb.yml")


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_YAML_NODES", 10)
    assert load_yaml(b"[" + b"1," * 9 + b"]", "f.yml") == ["1"] * 9
    with pytest.raises(InvalidConfiguration, match="more than 10 values"):
        load_yaml(b"[" + b"1," * 10 + b"]", "f.yml")


@pytest.mark.parametrize("kind", [InvalidImageList, StateUnreadable])
def test_the_caller_chooses_the_error(kind: type[TransloadError]) -> None:
    with pytest.raises(kind) as caught:
        load_yaml(b"a: [", "list.yml", raising=kind)
    assert caught.value.facts["file"] == "list.yml"


@pytest.mark.parametrize("value", [None, 1.5, b"raw", {1: "a"}, {"a": None}, [object()]])
def test_other_types_are_a_bug_of_the_caller(value: object) -> None:
    with pytest.raises(TypeError):
        dump_yaml(value)


def test_the_c_parser_is_used_where_it_is_there() -> None:
    if not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")
    assert yaml_files._Loader is yaml.CLoader
    assert yaml_files._Dumper is yaml.CDumper


def test_the_python_parser_reads_and_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_files, "_Loader", yaml.Loader)
    monkeypatch.setattr(yaml_files, "_Dumper", yaml.Dumper)
    document = {value: [value] for value in LOOKS_LIKE_SOMETHING_ELSE}
    assert load_yaml(dump_yaml(document), "f.yml") == document


def test_tags_are_refused_unless_the_caller_ignores_exactly_them() -> None:
    raw = b"!!python/object/apply:collections.defaultdict\na: !!python/name:builtins.dict ''\n"
    python = "tag:yaml.org,2002:python/"
    ignored = {f"{python}object/apply:collections.defaultdict", f"{python}name:builtins.dict"}
    assert load_yaml(raw, "f.yml", ignored_tags=ignored) == {"a": ""}
    for fewer in ignored:
        with pytest.raises(InvalidConfiguration, match="not accepted"):
            load_yaml(raw, "f.yml", ignored_tags={fewer})
