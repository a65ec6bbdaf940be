"""The real ssh-keygen is the judge: what we sign it accepts, what it signs we accept, keys go both ways."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from doubles.engines import require
from transload.shared.errors import KeyTypeUnsupported, KeyUnusable, SignatureInvalid
from transload.shared.signing.signer import signer_for
from transload.shared.signing.ssh_keys import PublicKey, SigningKey
from transload.shared.signing.sshsig import NAMESPACE, SshSignature, sign

pytestmark = pytest.mark.engine

MESSAGE = b"0123  bundle.json\n"
OPENSSH_TYPES = {
    "ed25519": ["-t", "ed25519"],
    "ecdsa-p256": ["-t", "ecdsa", "-b", "256"],
    "ecdsa-p384": ["-t", "ecdsa", "-b", "384"],
    "rsa-3072": ["-t", "rsa", "-b", "3072"],
}


@dataclass
class OpenSsh:
    folder: Path

    def keygen(self, *arguments: str | Path, message: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [require("ssh-keygen"), *arguments]
        return subprocess.run(command, input=message, capture_output=True, check=False, cwd=self.folder)

    def make_key(self, *arguments: str, passphrase: str = "", name: str = "key") -> Path:
        done = self.keygen("-q", *arguments, "-N", passphrase, "-C", "made by ssh-keygen", "-f", self.folder / name)
        assert done.returncode == 0, done.stderr
        return self.folder / name

    def sign(self, key: Path, *arguments: str, namespace: str = NAMESPACE) -> bytes:
        done = self.keygen("-Y", "sign", "-f", key, "-n", namespace, *arguments, message=MESSAGE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def verifies(self, signature: bytes, key: PublicKey, *, namespace: str = NAMESPACE) -> bool:
        (self.folder / "allowed").write_text(f'me namespaces="{namespace}" {key.line()}\n')
        (self.folder / "message.sig").write_bytes(signature)
        done = self.keygen(
            "-Y", "verify", "-f", "allowed", "-I", "me", "-n", namespace, "-s", "message.sig", message=MESSAGE
        )  # fmt: skip
        return done.returncode == 0


@pytest.fixture
def openssh(tmp_path: Path) -> OpenSsh:
    require("ssh-keygen")
    return OpenSsh(tmp_path)


def test_ssh_keygen_accepts_what_we_sign(openssh: OpenSsh, any_key: SigningKey) -> None:
    signature = sign(MESSAGE, any_key)
    assert openssh.verifies(signature, any_key.public_key)
    assert not openssh.verifies(signature, any_key.public_key, namespace="git")


@pytest.mark.parametrize("name", OPENSSH_TYPES)
def test_we_accept_what_ssh_keygen_signs_and_read_its_keys(openssh: OpenSsh, name: str) -> None:
    path = openssh.make_key(*OPENSSH_TYPES[name])
    public = PublicKey.parse_line(path.with_suffix(".pub").read_text())
    assert public.comment == "made by ssh-keygen"
    for hash_algorithm in ("sha256", "sha512"):
        signature = SshSignature.parse(openssh.sign(path, "-O", f"hashalg={hash_algorithm}"))
        signature.verify(MESSAGE)
        assert (signature.public_key, signature.hash_algorithm) == (public, hash_algorithm)
    ours = signer_for(path)(MESSAGE)
    assert openssh.verifies(ours, public)
    assert public.fingerprint.encode() in openssh.keygen("-l", "-f", path).stdout


def test_ed25519_signatures_are_the_same_bytes(openssh: OpenSsh) -> None:
    path = openssh.make_key("-t", "ed25519")
    assert signer_for(path)(MESSAGE) == openssh.sign(path)


@pytest.mark.parametrize("name", OPENSSH_TYPES)
def test_keys_with_a_passphrase_are_opened(openssh: OpenSsh, name: str) -> None:
    path = openssh.make_key(*OPENSSH_TYPES[name], "-a", "1", passphrase="päss wörd")
    public = PublicKey.parse_line(path.with_suffix(".pub").read_text())
    assert SigningKey.load(path, passphrase=lambda: "päss wörd").public_key == public
    with pytest.raises(KeyUnusable, match="does not open"):
        SigningKey.load(path, passphrase=lambda: "other")


@pytest.mark.parametrize("name", ["ed25519", "ecdsa-p256"])
def test_ssh_keygen_reads_the_keys_that_we_make(openssh: OpenSsh, name: str) -> None:
    made = SigningKey.generate(name, "ours")  # type: ignore[arg-type]
    path = openssh.folder / "ours"
    path.write_bytes(made.private_bytes())
    path.chmod(0o600)
    done = openssh.keygen("-y", "-f", path)
    assert PublicKey.parse_line(done.stdout.decode()) == made.public_key
    assert openssh.verifies(openssh.sign(path), made.public_key)


def test_a_signature_by_a_certificate_is_refused_by_name(openssh: OpenSsh) -> None:
    authority = openssh.make_key("-t", "ed25519", name="authority")
    path = openssh.make_key("-t", "ed25519")
    assert openssh.keygen("-q", "-s", authority, "-I", "id", "-n", "me", f"{path}.pub").returncode == 0
    certified = openssh.folder / "certified"
    certified.write_bytes(path.read_bytes())
    certified.chmod(0o600)
    (openssh.folder / "certified.pub").write_bytes((openssh.folder / "key-cert.pub").read_bytes())
    with pytest.raises(KeyUnusable, match="is a certificate"):
        signer_for(openssh.folder / "certified.pub")
    signature = openssh.sign(openssh.folder / "certified.pub")
    with pytest.raises(KeyTypeUnsupported, match="is a certificate"):
        SshSignature.parse(signature)


@pytest.mark.parametrize("arguments", [("-t", "ecdsa", "-b", "521"), ("-t", "rsa", "-b", "2048")])
def test_other_keys_of_ssh_keygen_are_refused_by_name(openssh: OpenSsh, arguments: tuple[str, ...]) -> None:
    path = openssh.make_key(*arguments)
    with pytest.raises(KeyUnusable, match="cannot sign bundles"):
        signer_for(path)
    with pytest.raises(KeyTypeUnsupported):
        SshSignature.parse(openssh.sign(path))


def test_a_signature_for_git_is_refused(openssh: OpenSsh) -> None:
    signature = SshSignature.parse(openssh.sign(openssh.make_key("-t", "ed25519"), namespace="git"))
    with pytest.raises(SignatureInvalid, match="namespace 'git'"):
        signature.verify(MESSAGE)


def test_a_key_in_pem_is_refused_with_the_command_that_converts_it(openssh: OpenSsh) -> None:
    path = openssh.make_key("-t", "rsa", "-b", "3072", "-m", "PEM")
    with pytest.raises(KeyUnusable, match="OpenSSH's format") as caught:
        signer_for(path)
    assert caught.value.hint.startswith(f"Convert an older format with `ssh-keygen -p -f {path}`")
    assert openssh.keygen("-q", "-p", "-f", path, "-P", "", "-N", "").returncode == 0
    assert openssh.verifies(signer_for(path)(MESSAGE), PublicKey.parse_line(path.with_suffix(".pub").read_text()))
