"""The trust file: ssh-keygen's grammar, stricter where a typing error could change who is trusted."""

import base64
import contextlib
import fnmatch
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.shared.errors import KeyTypeUnsupported, SignerOutOfTime, SignerUnknown, TrustFileUnusable
from transload.shared.signing.allowed_signers import AllowedSigners
from transload.shared.signing.patterns import matches_pattern_list
from transload.shared.signing.ssh_keys import SigningKey
from transload.shared.signing.ssh_wire import string
from transload.shared.signing.sshsig import NAMESPACE

NOW = datetime(2026, 6, 15, 12, 0, 0, tzinfo=timezone.utc)
OURS = 'namespaces="transload-bundle"'


def _admit(text: str, key: SigningKey, *, at: datetime = NOW, signer: str | None = None) -> str:
    trust = AllowedSigners.parse(text.encode(), "allowed_signers")
    return trust.admit(key.public_key, namespace=NAMESPACE, at=at, signer=signer)


def test_the_line_that_keygen_prints_admits(any_key: SigningKey) -> None:
    line = f"exporter@example.org {OURS} {any_key.public_key.line()}\n"
    assert _admit(line, any_key) == "exporter@example.org"
    assert _admit(line, any_key, signer="exporter@example.org") == "exporter@example.org"


def test_comments_blank_lines_and_line_ends_of_windows(key: SigningKey) -> None:
    text = f"# who signs\r\n\r\n \t\n\t# indented\r\n  me\t{OURS}\t \t{key.public_key.line()}\r\n"
    assert _admit(text, key) == "me"


@pytest.mark.parametrize("options", ["", 'valid-after="20200101" '])
def test_a_line_without_namespaces_does_not_count(key: SigningKey, options: str) -> None:
    with pytest.raises(SignerUnknown, match=r"line 1 names no namespaces, so it may be somebody's git key") as caught:
        _admit(f"me {options}{key.public_key.line()}\n", key)
    assert 'namespaces="transload-bundle"' in caught.value.hint


@pytest.mark.parametrize(
    "namespaces", ["git", "file,git", "transload-bundle2", "!transload-bundle,*", "Transload-Bundle"]
)
def test_a_line_for_other_namespaces_does_not_count(key: SigningKey, namespaces: str) -> None:
    with pytest.raises(SignerUnknown, match="is for the namespaces"):
        _admit(f'me namespaces="{namespaces}" {key.public_key.line()}\n', key)


@pytest.mark.parametrize("namespaces", ["transload-bundle", "git,transload-bundle", "transload-*", "*", "!git,*"])
def test_namespaces_are_a_pattern_list(key: SigningKey, namespaces: str) -> None:
    assert _admit(f'me NameSpaces="{namespaces}" {key.public_key.line()}\n', key) == "me"


def test_an_unknown_key_is_named(key: SigningKey) -> None:
    stranger = SigningKey.generate()
    for text in (f"me {OURS} {key.public_key.line()}\n", "", "# nobody\n"):
        with pytest.raises(SignerUnknown, match="is not in allowed_signers") as caught:
            _admit(text, stranger)
        assert stranger.public_key.fingerprint in caught.value.message


@pytest.mark.parametrize(
    ("principals", "signer", "admits"),
    [
        ("a@x,b@x", "b@x", True),
        ("*@x", "a@x", True),
        ("*@x", "a@y", False),
        ("a?@x", "ab@x", True),
        ("a?@x", "a@x", False),
        ("*@x,!root@x", "root@x", False),
        ("!root@x", "a@x", False),
        ('"a@x,b@x"', "a@x", True),
        ("A@x", "a@x", False),
        ("a@x", "a@x,b@x", False),
        ("a@x", "", False),
        ("a@x", "*", False),
    ],
)
def test_the_signer_asked_for_must_match_the_principals(
    key: SigningKey, principals: str, signer: str, admits: bool
) -> None:
    text = f"{principals} {OURS} {key.public_key.line()}\n"
    if admits:
        assert _admit(text, key, signer=signer) == signer
    else:
        with pytest.raises(SignerUnknown, match="belongs to"):
            _admit(text, key, signer=signer)


def test_any_line_that_admits_is_enough(key: SigningKey) -> None:
    public = key.public_key.line()
    text = f'git {public}\nold {OURS},valid-before="20200101Z" {public}\nnew {OURS} {public}\n'
    assert _admit(text, key) == "new"
    with pytest.raises(SignerOutOfTime, match=r"line 2: valid until 2020-01-01 00:00:00 UTC"):
        _admit(text, key, signer="old")


@pytest.mark.parametrize(
    ("option", "first", "last"),
    [
        ('valid-after="20260615Z"', datetime(2026, 6, 15, tzinfo=timezone.utc), None),
        ('valid-after="202606151130Z"', datetime(2026, 6, 15, 11, 30, tzinfo=timezone.utc), None),
        ('VALID-BEFORE="20260615113059z"', None, datetime(2026, 6, 15, 11, 30, 59, tzinfo=timezone.utc)),
        ('valid-before="20260615"', None, datetime(2026, 6, 15, 4, 0, tzinfo=timezone.utc)),
        ('valid-after="202601010000"', datetime(2026, 1, 1, 5, 0, tzinfo=timezone.utc), None),
    ],
)
def test_times_are_local_unless_they_end_in_z(
    key: SigningKey, new_york: None, option: str, first: datetime | None, last: datetime | None
) -> None:
    text = f"me {OURS},{option} {key.public_key.line()}\n"
    second = timedelta(seconds=1)
    for moment, outside in ((first, -second), (last, second)):
        if moment is not None:
            assert _admit(text, key, at=moment) == "me"  # both ends count, as for ssh-keygen
            with pytest.raises(SignerOutOfTime, match="not valid at"):
                _admit(text, key, at=moment + outside)


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMwzGoEFcr5qIDjWETZVW70R3Uomt0uJ4HVBFEY6FLcn"
BAD_LINES = {
    "principals alone": "me",
    "no key": f"me {OURS}",
    "no key after a space": f"me {OURS} ",
    "half a key": "me ssh-ed25519 AAAA",
    "key without principals": KEY,
    "space in the namespaces list": f"me namespaces=transload-bundle {KEY}",
    "open quote": f'me namespaces="transload-bundle {KEY}',
    "unknown option": f"me no-touch-required {KEY}",
    "option without a comma": f'me {OURS}valid-after="20200101" {KEY}',
    "space after a comma": f'me {OURS}, valid-after="20200101" {KEY}',
    "comma at the end": f"me {OURS}, {KEY}",
    "option twice": f"me {OURS},{OURS} {KEY}",
    "authority twice": f"me cert-authority,cert-authority {KEY}",
    "no such day": f'me valid-after="20260230" {KEY}',
    "half a time": f'me valid-after="2026061512" {KEY}',
    "time with a zone": f'me valid-after="20260615+0200" {KEY}',
    "empty time": f'me valid-before="" {KEY}',
    "times the wrong way round": f'me valid-after="20260616Z",valid-before="20260615Z" {KEY}',
    "wrong type": f"me {KEY.replace('ssh-ed25519', 'ssh-rsa')}",
    "control character": f"me {OURS} {KEY} \x1b[2J",
    "empty principals": f'"" {OURS} {KEY}',
    "open quote in principals": f'"me {OURS} {KEY}',
    "quote inside principals": f'm"e" {OURS} {KEY}',
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_one_bad_line_stops_everything_and_is_named(key: SigningKey, case: str) -> None:
    good = f"me {OURS} {key.public_key.line()}\n"
    with pytest.raises(TrustFileUnusable, match=r"allowed_signers, line 3: ") as caught:
        _admit(f"{good}# comment\n{BAD_LINES[case]}\n{good}", key)
    assert caught.value.facts["line"] == 3


def test_bytes_that_are_no_text_are_named() -> None:
    with pytest.raises(TrustFileUnusable, match="line 2: not UTF-8"):
        AllowedSigners.parse(b"# one\n\xff\xfe\n", "allowed_signers")


def _unsupported_line(name: bytes, options: str) -> str:
    return f"me {options} {name.decode()} {base64.b64encode(string(name) + string(b'x' * 40)).decode()}\n"


TYPES = [b"sk-ssh-ed25519@openssh.com", b"sk-ecdsa-sha2-nistp256@openssh.com", b"ssh-ed25519-cert-v01@openssh.com",
         b"ssh-dss", b"ecdsa-sha2-nistp521"]  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_a_line_for_bundles_with_an_unsupported_key_is_refused_by_name(key: SigningKey, name: bytes) -> None:
    good = f"me {OURS} {key.public_key.line()}\n"
    with pytest.raises(KeyTypeUnsupported, match=f"line 2: .*{name.decode()}"):
        _admit(good + _unsupported_line(name, OURS), key)
    assert _admit(good + _unsupported_line(name, 'namespaces="git"'), key) == "me"  # not meant for us
    assert _admit(good + _unsupported_line(name, ""), key) == "me"


def test_a_certificate_authority_for_bundles_is_refused_by_name(key: SigningKey) -> None:
    with pytest.raises(KeyTypeUnsupported, match="line 1: cert-authority lines do not count"):
        _admit(f"*@x cert-authority,{OURS} {key.public_key.line()}\n", key)
    with pytest.raises(SignerUnknown, match="git"):  # for git it may stand, and admits nothing here
        _admit(f'*@x namespaces="git",Cert-Authority {key.public_key.line()}\n', key)


def test_the_file_is_read_with_bounds(tmp_path: Path, key: SigningKey) -> None:
    path = tmp_path / "allowed"
    path.write_text(f"me {OURS} {key.public_key.line()}\n")
    assert AllowedSigners.load(path).lines[0].principals == "me"
    with pytest.raises(TrustFileUnusable, match="does not exist"):
        AllowedSigners.load(tmp_path / "nowhere")
    path.write_bytes(b"#" * 4_200_000 + b"\n")
    with pytest.raises(TrustFileUnusable, match="larger"):
        AllowedSigners.load(path)


@given(st.text(max_size=80))
def test_no_text_makes_anything_but_a_trust_file_or_its_error(text: str) -> None:
    with contextlib.suppress(TrustFileUnusable, KeyTypeUnsupported):
        AllowedSigners.parse(text.encode("utf-8", "surrogatepass"), "x")


@given(st.text(alphabet="ab*?", max_size=8), st.text(alphabet="ab", max_size=8))
def test_patterns_are_globs(pattern: str, text: str) -> None:
    assert matches_pattern_list(text, pattern) == fnmatch.fnmatchcase(text, pattern)


def test_a_pattern_of_many_stars_is_quick() -> None:
    assert not matches_pattern_list("a" * 3_000, "*a" * 300 + "b")


def test_a_public_key_file_is_named_as_one(key: SigningKey) -> None:
    with pytest.raises(TrustFileUnusable, match=r"line 1: a bare public key, as in a \.pub file") as caught:
        AllowedSigners.parse(f"{key.public_key.line()}\n".encode(), "exporter.key.pub")
    assert ".allowed_signers" in caught.value.hint


def test_a_byte_order_mark_never_becomes_part_of_a_principal(key: SigningKey) -> None:
    raw = f"\ufeffme {OURS} {key.public_key.line()}\n".encode()
    with pytest.raises(TrustFileUnusable, match="byte order mark"):
        AllowedSigners.parse(raw, "allowed_signers")


@pytest.mark.parametrize(("content", "why"), [("", "is empty"), ("# nobody yet\n\n", "holds comments alone")])
def test_a_file_that_trusts_nobody_says_so(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "allowed_signers"
    path.write_text(content)
    with pytest.raises(TrustFileUnusable, match=why):
        AllowedSigners.load(path)
