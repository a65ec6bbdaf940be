"""SSH's binary encoding: everything has one form, and a reader never goes past the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.shared.signing.ssh_wire import WireError, WireReader, mpint, string, uint32


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1), st.integers(0, 2**600))
def test_what_is_written_is_read(content: bytes, number: int, big: int) -> None:
    reader = WireReader(string(content) + uint32(number) + mpint(big))
    assert (reader.string("a"), reader.uint32("b"), reader.mpint("c")) == (content, number, big)
    reader.end()


@pytest.mark.parametrize(
    ("number", "encoded"),  # RFC 4251, section 5
    [(0, "00000000"), (0x9A378F9B2E332A7, "0000000809a378f9b2e332a7"), (0x80, "000000020080"), (0x7F, "000000017f")],
)
def test_big_numbers_as_in_the_rfc(number: int, encoded: str) -> None:
    assert mpint(number).hex() == encoded


@pytest.mark.parametrize("encoded", ["000000020001", "00000001ff", "0000000100", "000000030000ff"])
def test_a_big_number_has_one_form(encoded: str) -> None:
    with pytest.raises(WireError, match="shortest"):
        WireReader(bytes.fromhex(encoded)).mpint("n")


@given(st.binary(max_size=40))
def test_no_bytes_make_the_reader_go_past_the_end(raw: bytes) -> None:
    reader = WireReader(raw)
    try:
        content = reader.string("x")
    except WireError:
        return
    assert len(content) + 4 == reader.position <= len(raw)


def test_what_is_left_over_is_refused() -> None:
    reader = WireReader(string(b"a") + b"!")
    reader.string("a")
    with pytest.raises(WireError, match="1 bytes follow"):
        reader.end()


@pytest.mark.parametrize("text", [b"a b", b"a\0", b"\x1b[2J", "é".encode()])
def test_text_is_printable_ascii(text: bytes) -> None:
    with pytest.raises(WireError, match="printable"):
        WireReader(string(text)).text("name")
