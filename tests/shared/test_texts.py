from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from transload.shared.texts import path_text, well_formed, well_formed_data
from transload.shared.yaml_files import dump_yaml, load_yaml


@pytest.mark.parametrize(
    ("raw", "shown"),
    [(b"/plain", "/plain"), ("/\u00e9".encode(), "/\u00e9"), (b"/bad\xff", "/bad\\xff"), (b"/a\nb", "/a\nb")],
)
def test_a_path_is_text_whatever_its_bytes(raw: bytes, shown: str) -> None:
    assert path_text(Path(os.fsdecode(raw))) == shown


@pytest.mark.parametrize(("text", "expected"), [("a", "a"), ("\u00e9", "\u00e9"), ("a\udcff", "a\\udcff")])
def test_lone_surrogates_are_shown(text: str, expected: str) -> None:
    assert well_formed(text) == expected


def test_data_is_made_well_formed_at_every_depth() -> None:
    data = {"a\udcff": ["b\udcff", {"c": ("d\udcff", 1, None)}]}
    assert well_formed_data(data) == {"a\\udcff": ["b\\udcff", {"c": ["d\\udcff", 1, None]}]}
    json.dumps(well_formed_data(data), ensure_ascii=False).encode()


def test_yaml_is_written_for_any_text() -> None:
    assert load_yaml(dump_yaml({"key": "/bad\udcff"}), "x") == {"key": "/bad\\udcff"}
