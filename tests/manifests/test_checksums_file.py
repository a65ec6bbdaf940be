"""SHA256SUMS: one form, and sha256sum reads it."""

import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubles.engines import require
from transload.manifests import checksums_file
from transload.manifests.bundle_manifest import FILE_NAME_PATTERN
from transload.shared import limits
from transload.shared.errors import MalformedBundle

A, B = "a" * 64, "b" * 64
NAMES = st.from_regex(FILE_NAME_PATTERN, fullmatch=True).filter(
    lambda name: name.isascii() and not name.endswith("\n") and not name.casefold().startswith("sha256sums")
)
ENTRIES = st.dictionaries(NAMES, st.binary(min_size=32, max_size=32).map(bytes.hex), min_size=1, max_size=8)


@given(ENTRIES)
def test_what_is_written_is_read(entries: dict[str, str]) -> None:
    raw = checksums_file.encode(entries)
    assert checksums_file.decode(raw) == entries
    assert list(checksums_file.decode(raw)) == sorted(entries)


@given(ENTRIES, st.data())
def test_whatever_is_read_is_written_the_same(entries: dict[str, str], data: st.DataObject) -> None:
    raw = bytearray(checksums_file.encode(entries))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] = data.draw(st.integers(0, 255))
    try:
        read = checksums_file.decode(bytes(raw))
    except MalformedBundle:
        return
    assert checksums_file.encode(read) == raw


@pytest.mark.engine
def test_sha256sum_reads_it_and_writes_the_same(tmp_path: Path) -> None:
    files = {"b.txt": b"2", "B.txt": b"3", "a": b"1", "sif/x.sif": b"4"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    raw = checksums_file.encode({name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    (tmp_path / "SHA256SUMS").write_bytes(raw)
    done = subprocess.run(
        [require("sha256sum"), "--strict", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=True
    )
    assert done.stdout.count(b": OK") == 4
    written = subprocess.run([require("sha256sum"), *sorted(files)], cwd=tmp_path, capture_output=True, check=True)
    assert written.stdout == raw
    (tmp_path / "a").write_bytes(b"0")
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([require("sha256sum"), "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=True)


BAD = {
    "empty": b"",
    "blank line": b"\n",
    "no end of line": f"{A}  a".encode(),
    "blank line at the end": f"{A}  a\n\n".encode(),
    "one space": f"{A} a\n".encode(),
    "binary mode": f"{A} *a\n".encode(),
    "three spaces": f"{A}   a\n".encode(),
    "upper case": f"{A.upper()}  a\n".encode(),
    "short digest": f"{A[1:]}  a\n".encode(),
    "long digest": f"{A}a  a\n".encode(),
    "not hexadecimal": f"{'g' * 64}  a\n".encode(),
    "windows": f"{A}  a\r\n".encode(),
    "escaped name": f"\\{A}  a\\nb\n".encode(),
    "comment": f"# x\n{A}  a\n".encode(),
    "bsd form": f"SHA256 (a) = {A}\n".encode(),
    "unsorted": f"{A}  b\n{B}  a\n".encode(),
    "twice": f"{A}  a\n{A}  a\n".encode(),
    "twice, other digest": f"{A}  a\n{B}  a\n".encode(),
    "parent folder": f"{A}  ../a\n".encode(),
    "absolute": f"{A}  /a\n".encode(),
    "this folder": f"{A}  ./a\n".encode(),
    "dot file": f"{A}  .a\n".encode(),
    "two folders": f"{A}  a/b/c\n".encode(),
    "folder": f"{A}  a/\n".encode(),
    "backslash": f"{A}  a\\b\n".encode(),
    "space in name": f"{A}  a b\n".encode(),
    "nul": f"{A}  a\0\n".encode(),
    "not ascii": f"{A}  é\n".encode(),
    "not utf-8": f"{A}  ".encode() + b"\xff\n",
    "byte-order mark": b"\xef\xbb\xbf" + f"{A}  a\n".encode(),
    "no name": f"{A}  \n".encode(),
    "long name": f"{A}  {'a' * 201}\n".encode(),
    "vertical tab": f"{A}  a\x0b\n".encode(),
    "itself": f"{A}  SHA256SUMS\n".encode(),
    "itself on fat": f"{A}  sha256sums\n".encode(),
    "its signature": f"{A}  SHA256SUMS.sig\n".encode(),
    "another signature": f"{A}  SHA256SUMS.bob.sig\n".encode(),
}


@pytest.mark.parametrize("case", BAD)
def test_any_other_form_is_refused(case: str) -> None:
    with pytest.raises(MalformedBundle, match="SHA256SUMS"):
        checksums_file.decode(BAD[case])


def test_the_line_is_named() -> None:
    with pytest.raises(MalformedBundle, match="line 2"):
        checksums_file.decode(f"{A}  a\n{A}  b c\n".encode())


def test_a_huge_file_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(MalformedBundle, match="at most"):
        checksums_file.decode(b"x" * (limits.MAX_CHECKSUMS_BYTES + 1))


@pytest.mark.parametrize(
    ("name", "digest"), [("../a", A), ("a", A[1:]), ("SHA256SUMS", A), ("a\n", A), ("a", A + "\n")]
)
def test_what_could_not_be_read_is_not_written(name: str, digest: str) -> None:
    with pytest.raises(MalformedBundle):
        checksums_file.encode({name: digest})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SHA256SUMS.sig", True),
        ("SHA256SUMS.bob.sig", True),
        ("SHA256SUMS.b_o-b.sig", True),
        ("SHA256SUMS..sig", False),
        ("SHA256SUMS.a.b.sig", False),
        ("SHA256SUMS.sig\n", False),
        ("SHA256SUMSxsig", False),
        ("SHA256SUMS.bob.sig.sig", False),
        ("sha256sums.sig", False),
        ("x/SHA256SUMS.sig", False),
        ("SHA256SUMS", False),
    ],
)
def test_names_of_signatures(name: str, expected: bool) -> None:
    assert checksums_file.is_signature_name(name) == expected
