"""How a bundle is signed: key files, passphrases, and a real ssh-agent."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.engines import require
from transload.shared.errors import KeyUnusable
from transload.shared.signing.signer import PASSPHRASE_FILE_VARIABLE, signer_for
from transload.shared.signing.ssh_keys import SigningKey
from transload.shared.signing.sshsig import SshSignature

MESSAGE = b"0123  bundle.json\n"


def _write_key(folder: Path, key: SigningKey, name: str = "key") -> Path:
    path = folder / name
    path.write_bytes(key.private_bytes())
    path.chmod(0o600)
    path.with_suffix(".pub").write_text(key.public_key.line() + "\n")
    return path


def test_a_private_key_file_signs(tmp_path: Path, any_key: SigningKey) -> None:
    signature = SshSignature.parse(signer_for(_write_key(tmp_path, any_key))(MESSAGE))
    signature.verify(MESSAGE)
    assert signature.public_key == any_key.public_key


def test_an_unusable_key_is_found_before_anything_is_signed(tmp_path: Path) -> None:
    with pytest.raises(KeyUnusable, match="does not exist"):
        signer_for(tmp_path / "nowhere")
    (tmp_path / "odd.pub").write_text("no key\n")
    with pytest.raises(KeyUnusable, match="is not a public key"):
        signer_for(tmp_path / "odd.pub")


def test_without_ssh_keygen_a_public_key_cannot_sign(
    tmp_path: Path, key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write_key(tmp_path, key).with_suffix(".pub")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KeyUnusable, match="ssh-keygen is not installed"):
        signer_for(path)


@pytest.mark.engine
@pytest.mark.parametrize("content", ["open sesame", "open sesame\n", "open sesame\r\n"])
def test_the_passphrase_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    path = tmp_path / "key"
    command: list[str | Path] = [
        require("ssh-keygen"),
        "-q",
        "-t",
        "ed25519",
        "-a",
        "1",
        "-N",
        "open sesame",
        "-f",
        path,
    ]
    subprocess.run(command, check=True)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(KeyUnusable, match="none was given"):
        signer_for(path)
    (tmp_path / "passphrase").write_bytes(content.encode())
    monkeypatch.setenv(PASSPHRASE_FILE_VARIABLE, str(tmp_path / "passphrase"))
    SshSignature.parse(signer_for(path)(MESSAGE)).verify(MESSAGE)
    (tmp_path / "passphrase").write_text("wrong")
    with pytest.raises(KeyUnusable, match="does not open"):
        signer_for(path)
    (tmp_path / "passphrase").unlink()
    with pytest.raises(KeyUnusable, match="passphrase file"):
        signer_for(path)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A running ssh-agent, named in SSH_AUTH_SOCK."""
    socket = tmp_path / "agent.sock"
    process = subprocess.Popen(
        [require("ssh-agent"), "-D", "-a", str(socket)], stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # printed when it listens
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        yield socket
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.engine
def test_an_agent_signs_for_a_public_key(tmp_path: Path, agent: Path, any_key: SigningKey) -> None:
    path = _write_key(tmp_path, any_key)
    subprocess.run([require("ssh-add"), "-q", path], check=True)
    path.unlink()  # only the agent has it now
    signature = SshSignature.parse(signer_for(path.with_suffix(".pub"))(MESSAGE))
    signature.verify(MESSAGE)
    assert signature.public_key == any_key.public_key


@pytest.mark.engine
def test_an_agent_without_the_key_is_found_before_the_export(tmp_path: Path, agent: Path, key: SigningKey) -> None:
    path = _write_key(tmp_path, key)
    path.unlink()
    with pytest.raises(KeyUnusable, match="ssh-keygen did not sign") as caught:
        signer_for(path.with_suffix(".pub"))
    assert "ssh-add" in caught.value.hint


@pytest.mark.engine
def test_a_signature_by_another_key_than_named_is_refused(
    tmp_path: Path, key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ssh-keygen (or an agent behind it) that signs with whatever it has."""
    other = _write_key(tmp_path, SigningKey.generate(), "other")
    wrapper = tmp_path / "bin" / "ssh-keygen"
    wrapper.parent.mkdir()
    wrapper.write_text(f"#!/bin/sh\nexec {require('ssh-keygen')} -Y sign -n transload-bundle -f {other}\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(wrapper.parent))
    with pytest.raises(KeyUnusable, match="was made by another key"):
        signer_for(_write_key(tmp_path, key).with_suffix(".pub"))
