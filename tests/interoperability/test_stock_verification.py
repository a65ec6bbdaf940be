"""`ssh-keygen -Y verify` and `sha256sum -c`, with nothing of ours: they accept the bundle and catch every change."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from doubles.bundle_factory import checksums
from doubles.engines import require
from doubles.signer import Signer

pytestmark = pytest.mark.engine

SEED = int(os.environ.get("TRANSLOAD_TEST_SEED", "20240102"))
SIGNATURE, CHECKSUMS = "SHA256SUMS.sig", "SHA256SUMS"


def stock_tools_accept(folder: Path, trust: Path) -> bool:
    """What a security officer runs."""
    verify = [str(require("ssh-keygen")), "-Y", "verify", "-n", "transload-bundle", "-f", str(trust), "-I",
              Signer().name, "-s", str(folder / SIGNATURE)]  # fmt: skip
    with (folder / CHECKSUMS).open("rb") as root:
        if subprocess.run(verify, stdin=root, capture_output=True, check=False).returncode:
            return False
    check = [str(require("sha256sum")), "--check", "--strict", "--quiet", CHECKSUMS]
    return subprocess.run(check, cwd=folder, capture_output=True, check=False).returncode == 0


def test_the_bundle_is_accepted_as_it_lies(carried: Any) -> None:
    assert stock_tools_accept(carried.folder, carried.trust)
    named = {line.split("  ")[1] for line in (carried.folder / CHECKSUMS).read_text().splitlines()}
    assert named | {CHECKSUMS, SIGNATURE} == {file.name for file in carried.folder.iterdir()}


def test_a_flip_in_any_file_is_caught(spoilable: Any) -> None:
    draw = random.Random(SEED)
    print("seed", SEED)
    for file in sorted(spoilable.folder.iterdir()):
        original = file.read_bytes()
        # Of a signature file ssh-keygen lets some changes of the armour pass, which change nothing of what is signed
        # (FORMAT.md 6: our own parser refuses them too): there the middle is flipped, elsewhere also both ends.
        ends = [] if file.name == SIGNATURE else [0, len(original) - 1]
        for offset in {*ends, len(original) // 2, draw.randrange(len(original) // 3, len(original) // 2)}:
            spoiled = bytearray(original)
            spoiled[offset] ^= 1 << draw.randrange(5)
            file.write_bytes(spoiled)
            assert not stock_tools_accept(spoilable.folder, spoilable.trust), f"{file.name} at {offset}"
        file.write_bytes(original)
    assert stock_tools_accept(spoilable.folder, spoilable.trust)


def test_a_missing_truncated_or_grown_file_is_caught(spoilable: Any) -> None:
    for file in sorted(spoilable.folder.iterdir()):
        original = file.read_bytes()
        file.write_bytes(original[:-1] if file.name != SIGNATURE else original[:-40])
        assert not stock_tools_accept(spoilable.folder, spoilable.trust), f"{file.name} truncated"
        if file.name != SIGNATURE:
            file.write_bytes(original + b"\0")
            assert not stock_tools_accept(spoilable.folder, spoilable.trust), f"{file.name} grown"
        file.unlink()
        if file.name not in (CHECKSUMS, SIGNATURE):
            assert not stock_tools_accept(spoilable.folder, spoilable.trust), f"{file.name} missing"
        file.write_bytes(original)
    assert stock_tools_accept(spoilable.folder, spoilable.trust)


def test_chunks_swapped_together_with_their_lines_are_caught(spoilable: Any) -> None:
    # sha256sum alone is content with this: only the signature over SHA256SUMS tells.
    one, other = spoilable.folder / "images.tar.0001", spoilable.folder / "images.tar.0002"
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    assert not stock_tools_accept(spoilable.folder, spoilable.trust)
    names = [file for file in spoilable.folder.iterdir() if file.name not in (CHECKSUMS, SIGNATURE)]
    (spoilable.folder / CHECKSUMS).write_bytes(checksums({file.name: file.read_bytes() for file in names}))
    content = subprocess.run(
        [require("sha256sum"), "--check", "--strict", CHECKSUMS], cwd=spoilable.folder, capture_output=True, check=False
    )
    assert content.returncode == 0
    assert not stock_tools_accept(spoilable.folder, spoilable.trust)


@pytest.mark.parametrize("forgery", ["another key", "another namespace", "another file"])
def test_a_signature_that_is_not_the_exporters_over_this_file_is_caught(spoilable: Any, forgery: str) -> None:
    root = (spoilable.folder / CHECKSUMS).read_bytes()
    forged = {
        "another key": lambda: Signer("mallory@example.org").sign(root),
        "another namespace": lambda: Signer().sign(root, "git"),
        "another file": lambda: Signer().sign(root + b"\n"),
    }
    assert Signer().sign(root) == (spoilable.folder / SIGNATURE).read_bytes()
    (spoilable.folder / SIGNATURE).write_bytes(forged[forgery]())
    assert not stock_tools_accept(spoilable.folder, spoilable.trust)


def test_joined_chunks_are_what_bundle_json_describes(carried: Any) -> None:
    digests = (carried.folder / "images.blocks").read_bytes()
    joined = carried.joined.read_bytes()
    block = 4 * 1024 * 1024
    starts = range(0, len(joined), block)
    assert digests == b"".join(hashlib.sha256(joined[start : start + block]).digest() for start in starts)
