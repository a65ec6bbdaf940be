from __future__ import annotations

import os
from pathlib import Path

import pytest

from doubles.sample_state import Entry, Sample, add_and_save, names_in, sample, write_sample
from transload.shared import limits
from transload.shared.errors import ReadFailed, StateConflict, StateUnreadable
from transload.shared.state_file import (
    StateFile,
    decode_state,
    default_state_path,
    encode_state,
    read_side,
    read_state,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.yml"


# --- reading and writing ---


def test_state_survives_saving_and_reading(path: Path) -> None:
    awkward = ("1.10", "2024-01-01", "on", "~", "0x10", "1e3", "null")
    with StateFile.open(path, Sample, Sample.fresh) as file:
        file.state = sample(*awkward)
        file.save()
    assert read_state(path, Sample) == sample(*awkward)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_missing_file_is_a_fresh_start_and_stays_missing_until_saved(path: Path) -> None:
    assert read_state(path, Sample) is None
    assert read_side(path) is None
    with StateFile.open(path, Sample, Sample.fresh) as file:
        assert file.state == Sample.fresh()
    assert not path.exists()


def test_the_folder_is_made(tmp_path: Path) -> None:
    deep = tmp_path / "var" / "lib" / "state.yml"
    with StateFile.open(deep, Sample, Sample.fresh) as file:
        file.save()
    assert deep.exists()


def test_mapping_order_does_not_matter(path: Path) -> None:
    assert encode_state(sample("a", "b")) != encode_state(sample("b", "a"))  # a list keeps its order
    one, two = sample("a", "b"), sample("a", "b")
    two.entries = dict(reversed(two.entries.items()))
    assert encode_state(one) == encode_state(two)


def test_hand_edits_are_read(path: Path) -> None:
    path.write_text(
        "schema: 3\nside: export\nentries:\n  x: {tag: 1.10, is_good: false}\nnames: [on, 2024-01-01]\n...\n\n# end\n"
    )
    state = read_state(path, Sample)
    assert state is not None
    assert state.entries == {"x": Entry(tag="1.10", is_good=False)}
    assert state.names == ["on", "2024-01-01"]


def test_saving_unchanged_state_does_not_touch_the_file(path: Path) -> None:
    path.write_text("# by hand\nside: export\nschema: 3\nnames: [a]\nentries: {}\n...\n")
    before = path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()
    with StateFile.open(path, Sample, Sample.fresh) as file:
        file.save(force=True)
    assert (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) == before
    assert names_in(path.parent) == {"state.yml", "state.yml.lock"}


def test_the_previous_copy_is_kept(path: Path) -> None:
    first = write_sample(path, "a")
    add_and_save(path, "b")
    assert path.with_name("state.yml.previous").read_bytes() == first
    assert names_in(path.parent) == {"state.yml", "state.yml.previous", "state.yml.lock"}


def test_saves_are_at_most_one_a_second_and_the_last_is_written_at_the_end(path: Path) -> None:
    clock, seen = Clock(), []

    def on_disk() -> list[str]:
        state = read_state(path, Sample)
        return state.names if state else []

    with StateFile.open(path, Sample, Sample.fresh, clock=clock) as file:
        for moment in (0.0, 0.5, 0.99, 1.0, 1.5):
            clock.now = 100.0 + moment
            file.state.names.append(str(moment))
            file.save()
            seen.append(len(on_disk()))
        file.state.names.append("forced")
        file.save(force=True)
        seen.append(len(on_disk()))
        file.state.names.append("last")
        file.save()
        seen.append(len(on_disk()))
    assert seen == [1, 1, 1, 4, 4, 6, 6]
    assert len(on_disk()) == 7


def test_what_is_due_is_written_when_the_run_fails(path: Path) -> None:
    clock = Clock()

    def run() -> None:
        with StateFile.open(path, Sample, Sample.fresh, clock=clock) as file:
            file.save()
            file.state.names.append("x")
            file.save()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    state = read_state(path, Sample)
    assert state is not None
    assert state.names == ["x"]


def test_the_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_state_path() == Path("/var/lib/transload/state.yml")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state_path() == tmp_path / "transload" / "state.yml"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_state_path() == Path("/home/someone/.local/state/transload/state.yml")


# --- what cannot be understood ---


def test_a_file_truncated_at_any_byte_is_noticed(path: Path) -> None:
    whole = write_sample(path, "1.10", "24.01-py3")
    assert whole.endswith(b"\n...\n")
    for length in range(len(whole) - 1):  # the very last byte is a line break, without which it is still whole
        path.write_bytes(whole[:length])
        with pytest.raises(StateUnreadable):
            read_state(path, Sample)
        with pytest.raises(StateUnreadable), StateFile.open(path, Sample, Sample.fresh):
            pytest.fail(f"{length} bytes were taken for a whole file")
        assert path.read_bytes() == whole[:length]


GOOD = "schema: 3\nside: export\nentries: {}\nnames: []\n"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "it is empty"),
        ("\n# nothing\n", "it is empty"),
        (GOOD, "its end is missing"),
        (GOOD.replace("3", "4") + "...\n", "schema 4, written by a later transload"),
        (GOOD.replace("3", "2") + "...\n", "schema 2; 3 is expected"),
        (GOOD.replace("3", "three") + "...\n", "schema"),
        (GOOD.replace("export", "import") + "...\n", "side 'import', not of the export side"),
        (GOOD.replace("schema: 3\n", "") + "...\n", "schema"),
        (GOOD + "mystery: 1\n...\n", "mystery"),
        (GOOD.replace("names: []", "names: {a: b}") + "...\n", r"$.names"),
        (GOOD.replace("entries: {}", "entries: {x: {tag: t, count: -1}}") + "...\n", "$.entries[...].count"),
        (GOOD.replace("entries: {}", "entries: {x: {tag: t, count: many}}") + "...\n", "$.entries[...].count"),
        (GOOD.replace("entries: {}", "entries: {x: {tag: [t]}}") + "...\n", "$.entries[...].tag"),
        (GOOD + "names: [again]\n...\n", "line 5, column 1"),
        ("- a list\n...\n", "not a mapping"),
        (GOOD + "x: !!python/name:builtins.dict ''\n...\n", "tag"),
        ("\x00\x00\x00\x00\n...\n", "control characters"),
    ],
)
def test_what_cannot_be_understood_stops_the_run(path: Path, content: str, what: str) -> None:
    path.write_text(content)
    with pytest.raises(StateUnreadable) as caught, StateFile.open(path, Sample, Sample.fresh):
        pytest.fail("it was taken for a state")
    assert str(path) in caught.value.message
    assert what in caught.value.message
    assert caught.value.hint
    assert path.read_text() == content


def test_the_hint_names_the_previous_copy(path: Path) -> None:
    path.write_text("garbage")
    path.with_name("state.yml.previous").write_text("x")
    with pytest.raises(StateUnreadable) as caught:
        read_state(path, Sample)
    assert "state.yml.previous" in caught.value.hint


def test_a_missing_file_with_a_previous_copy_is_no_fresh_start(path: Path) -> None:
    path.with_name("state.yml.previous").write_bytes(encode_state(sample("a")))
    with pytest.raises(StateUnreadable, match="does not exist, but its previous copy") as caught:
        read_state(path, Sample)
    assert "copy" in caught.value.hint
    with pytest.raises(StateUnreadable), StateFile.open(path, Sample, Sample.fresh):
        pytest.fail("started from nothing")


def test_a_file_that_the_system_does_not_let_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(ReadFailed, match="too long"):  # as good as a folder that this user may not enter
        read_state(tmp_path / ("long" * 100) / "state.yml", Sample)


def test_a_folder_or_a_giant_in_its_place_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StateUnreadable):
        read_state(tmp_path / "folder", Sample)
    monkeypatch.setattr(limits, "MAX_STATE_BYTES", 100)
    write_sample(tmp_path / "big", *"abcdefgh")
    with pytest.raises(StateUnreadable, match="larger than"):
        read_state(tmp_path / "big", Sample)


def test_it_is_read_by_its_own_side(path: Path) -> None:
    write_sample(path, "a")
    assert read_side(path) == "export"
    assert decode_state(path.read_bytes(), Sample, path) == sample("a")


# --- edits meanwhile ---


def somebody_edits(path: Path, edit: str) -> bytes | None:
    match edit:
        case "appended":
            path.write_bytes(path.read_bytes() + b"# a remark\n")
        case "deleted":
            path.unlink()
            return None
        case _:
            write_sample(path, edit)
    return path.read_bytes()


@pytest.mark.parametrize("edit", ["changed", "appended", "deleted", "created"])
def test_an_edit_meanwhile_is_not_overwritten(path: Path, edit: str) -> None:
    if edit != "created":
        write_sample(path, "a")
    edited: list[bytes | None] = []

    def run() -> None:
        with StateFile.open(path, Sample, Sample.fresh) as file:
            edited.append(somebody_edits(path, edit))
            file.state.names.append("ours")
            file.save()

    with pytest.raises(StateConflict) as caught:
        run()
    assert [path.read_bytes() if path.exists() else None] == edited
    beside = Path(str(caught.value.facts["written_beside"]))
    assert beside.parent == path.parent
    assert beside.name.startswith("state.yml.conflict-")
    ours = decode_state(beside.read_bytes(), Sample, beside)
    assert ours.names[-1] == "ours"
    assert str(beside) in caught.value.message


def test_after_our_own_saves_there_is_no_conflict(path: Path) -> None:
    with StateFile.open(path, Sample, Sample.fresh) as file:
        for name in "abc":
            file.state.names.append(name)
            file.save(force=True)
    state = read_state(path, Sample)
    assert state is not None
    assert state.names == ["a", "b", "c"]


# --- files of a program that went before ---


def upgrade(raw: bytes, path: Path) -> Sample | None:
    return sample(raw.decode()) if raw.startswith(b"old") else None


def test_a_foreign_file_is_upgraded_at_once_and_its_copy_kept(path: Path) -> None:
    path.write_text("old")
    with StateFile.open(path, Sample, Sample.fresh, upgrade=upgrade) as file:
        assert file.state == sample("old")
        assert read_state(path, Sample) == sample("old")
        assert path.with_name("state.yml.previous").read_text() == "old"
    with StateFile.open(path, Sample, Sample.fresh, upgrade=upgrade) as file:
        assert file.state == sample("old")


def test_what_is_not_foreign_is_read_as_ever(path: Path) -> None:
    path.write_text("other")
    with pytest.raises(StateUnreadable), StateFile.open(path, Sample, Sample.fresh, upgrade=upgrade):
        pass
