"""The same trust file, the same signature: ssh-keygen and we decide alike, except where we are stricter on purpose."""

import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from doubles.engines import require
from transload.shared.errors import TransloadError
from transload.shared.signing.allowed_signers import AllowedSigners
from transload.shared.signing.ssh_keys import SigningKey
from transload.shared.signing.sshsig import NAMESPACE, sign

pytestmark = pytest.mark.engine

MESSAGE = b"message\n"
OURS = 'namespaces="transload-bundle"'
AT = datetime(2026, 6, 15, 12, 0, 0, tzinfo=timezone.utc)

ALIKE = [
    "me {ours} {key}",
    "me {ours} {key} a comment, \"with\" things",
    "\t me \t {ours}  {key}",
    "me {ours} {key}\r",
    "you {ours} {key}",
    "you,me {ours} {key}",
    "m? {ours} {key}",
    "*,!me {ours} {key}",
    "!me {ours} {key}",
    "!you {ours} {key}",
    "ME {ours} {key}",
    '"me" {ours} {key}',
    '"you,me" {ours} {key}',
    'me namespaces="git" {key}',
    'me namespaces="git,transload-*" {key}',
    'me namespaces="!transload-bundle,*" {key}',
    'me namespaces="TRANSLOAD-BUNDLE" {key}',
    'me namespaces="" {key}',
    "me NAMESPACES=\"transload-bundle\" {key}",
    "me namespaces=transload-bundle {key}",
    'me {ours},valid-after="20260615Z" {key}',
    'me {ours},valid-after="20260616Z" {key}',
    'me {ours},valid-after="202606151200Z" {key}',
    'me {ours},valid-after="20260615120000Z" {key}',
    'me {ours},valid-after="20260615120001Z" {key}',
    'me {ours},valid-before="20260615120000Z" {key}',
    'me {ours},valid-before="20260615115959Z" {key}',
    'me valid-before="20260616Z",{ours},valid-after="20260614Z" {key}',
    'me {ours},valid-after="20260614Z",valid-before="20260613Z" {key}',
    'me {ours},valid-after="20260615" {key}',
    'me {ours},valid-after="202606151300" {key}',
    'me {ours},valid-after="202606151500" {key}',
    'me {ours},valid-before="202606151359" {key}',
    'me {ours},valid-before="202606151400" {key}',
    'me {ours},valid-after="2026061" {key}',
    'me {ours},valid-after="20261340" {key}',
    "me {ours},unknown {key}",
    "me {ours},{ours} {key}",
    "me {ours}, {key}",
    "me cert-authority,{ours} {key}",
    "me {ours}",
    "{ours} {key}",
    "# me {ours} {key}",
    "",
    "you {ours} {other}\nme {ours} {key}",
    "me {ours} {other}",
]  # fmt: skip


STRICTER = [
    "me {key}",  # perhaps somebody's git key
    'me valid-after="20200101" {key}',
    "garbage\nme {ours} {key}",
    "me {ours} {key}\ngarbage",
    "you namespaces=git {other}\nme {ours} {key}",
    "me {ours} {key}\nyou cert-authority,{ours} {other}",
]


@pytest.fixture
def two_hours_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "XXX-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _decisions(folder: Path, key: SigningKey, template: str) -> tuple[str | None, str | None]:
    """Why ssh-keygen and we refuse; None where it is admitted."""
    other = SigningKey.generate().public_key.line()
    text = template.format(ours=OURS, key=key.public_key.line(), other=other) + "\n"
    (folder / "allowed").write_bytes(text.encode())
    (folder / "sig").write_bytes(sign(MESSAGE, key))
    command: list[str | Path] = [require("ssh-keygen"), "-Y", "verify", "-f", folder / "allowed", "-I", "me",
               "-n", NAMESPACE, "-s", folder / "sig", "-O", "verify-time=20260615120000Z"]  # fmt: skip
    done = subprocess.run(command, input=MESSAGE, capture_output=True, check=False)
    theirs = None if done.returncode == 0 else done.stderr.decode()
    try:
        AllowedSigners.load(folder / "allowed").admit(key.public_key, namespace=NAMESPACE, at=AT, signer="me")
    except TransloadError as error:
        return theirs, error.message
    return theirs, None


@pytest.mark.parametrize("template", ALIKE)
def test_we_decide_like_ssh_keygen(tmp_path: Path, key: SigningKey, template: str, two_hours_east: None) -> None:
    theirs, ours = _decisions(tmp_path, key, template)
    assert (theirs is None) == (ours is None), (theirs, ours)


@pytest.mark.parametrize("template", STRICTER)
def test_we_are_stricter_on_purpose(tmp_path: Path, key: SigningKey, template: str) -> None:
    theirs, ours = _decisions(tmp_path, key, template)
    assert theirs is None
    assert ours is not None
