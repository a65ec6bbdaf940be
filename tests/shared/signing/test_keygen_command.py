"""`transload keygen`: three files, one line, nothing overwritten, nothing left behind."""

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from doubles.engines import require
from transload.shared.atomic_files import FaultPoints
from transload.shared.command_line import cli
from transload.shared.errors import AlreadyExists, InvalidConfiguration, NotEnoughSpace, PathMissing
from transload.shared.signing.keygen_command import keygen
from transload.shared.signing.ssh_keys import SigningKey


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(keygen, [str(argument) for argument in arguments], catch_exceptions=True)


@pytest.mark.parametrize(("name", "expected"), [("ed25519", "ssh-ed25519"), ("ecdsa-p256", "ecdsa-sha2-nistp256")])
def test_the_files_belong_together(tmp_path: Path, name: str, expected: str) -> None:
    path = tmp_path / "key"
    result = _run("--output", path, "--type", name, "--principal", "exporter@hpc.example.org", "--comment", "June 2026")
    assert result.exit_code == 0, result.output
    public = SigningKey.load(path).public_key
    assert (public.key_type, stat.S_IMODE(path.stat().st_mode)) == (expected, 0o600)
    line = f'exporter@hpc.example.org namespaces="transload-bundle" {public.line()} June 2026\n'
    assert result.stdout == line == (tmp_path / "key.allowed_signers").read_text()
    assert (tmp_path / "key.pub").read_text() == f"{public.line()} June 2026\n"
    assert public.fingerprint in result.stderr
    assert "PRIVATE" not in result.output
    assert f"--sign-key {path}" in result.stderr


def test_the_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        _run("--output", tmp_path / "key")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"key": 0o600, "key.pub": 0o644, "key.allowed_signers": 0o644}


@pytest.mark.parametrize("taken", ["key", "key.pub", "key.allowed_signers"])
@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_nothing_is_overwritten(tmp_path: Path, taken: str, kind: str) -> None:
    if kind == "file":
        (tmp_path / taken).write_text("precious")
    else:
        (tmp_path / taken).symlink_to(tmp_path / "elsewhere")
    result = _run("--output", tmp_path / "key")
    assert isinstance(result.exception, AlreadyExists)
    assert os.listdir(tmp_path) == [taken]
    assert kind != "file" or (tmp_path / taken).read_text() == "precious"


@pytest.mark.parametrize("step", ["fsync key", "fsync key.pub", "fsync key.allowed_signers"])
def test_a_full_disk_leaves_no_half_made_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(name: str) -> None:
        if name == step:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FaultPoints, "reached", fail)
    result = _run("--output", tmp_path / "key")
    assert isinstance(result.exception, NotEnoughSpace)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    result = _run("--output", tmp_path / "nowhere" / "key")
    assert isinstance(result.exception, PathMissing)
    assert "nowhere" in str(result.exception)


@pytest.mark.parametrize(
    "principal", ["", "two words", "a,b", "*", "!me", '"quoted"', "#comment", "a\nb", "é", "x" * 129]
)
def test_a_principal_that_would_mean_something_else_is_refused(tmp_path: Path, principal: str) -> None:
    result = _run("--output", tmp_path / "key", "--principal", principal)
    assert isinstance(result.exception, InvalidConfiguration)
    assert os.listdir(tmp_path) == []


def test_a_comment_of_two_lines_is_refused(tmp_path: Path) -> None:
    result = _run("--output", tmp_path / "key", "--comment", 'x\nme namespaces="transload-bundle" ssh-ed25519 AAAA')
    assert isinstance(result.exception, InvalidConfiguration)


def test_the_default_principal_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "DOMAIN\\jürgen")
    monkeypatch.setattr("socket.gethostname", lambda: "node 1")
    assert _run("--output", tmp_path / "key").stdout.startswith("DOMAIN-j-rgen@node-1 namespaces=")


@pytest.mark.engine
@pytest.mark.parametrize("name", ["ed25519", "ecdsa-p256"])
def test_ssh_keygen_works_with_the_files(tmp_path: Path, name: str) -> None:
    ssh_keygen, path = require("ssh-keygen"), tmp_path / "key"
    _run("--output", path, "--type", name, "--principal", "me")
    message = b"message\n"
    common = ["-n", "transload-bundle"]
    signed = subprocess.run(
        [ssh_keygen, "-Y", "sign", "-f", path, *common], input=message, capture_output=True, check=True
    )
    (tmp_path / "sig").write_bytes(signed.stdout)
    verify: list[str | Path] = [
        ssh_keygen,
        "-Y",
        "verify",
        "-f",
        f"{path}.allowed_signers",
        "-I",
        "me",
        *common,
        "-s",
        tmp_path / "sig",
    ]
    subprocess.run(verify, input=message, check=True, capture_output=True)
    subprocess.run([ssh_keygen, "-q", "-p", "-f", path, "-P", "", "-N", "secret", "-a", "1"], check=True)
    assert SigningKey.load(path, passphrase=lambda: "secret").public_key.line() in (tmp_path / "key.pub").read_text()


def test_the_help_names_each_default_once() -> None:
    shown = " ".join(CliRunner().invoke(cli, ["keygen", "--help"]).stdout.split())
    assert [shown.count(f"[default: ({what})]") for what in ("the principal", "user@host")] == [1, 1]
    assert '[default: ""]' not in shown
