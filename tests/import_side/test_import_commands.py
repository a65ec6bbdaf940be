"""The commands `list`, `verify` and `import` as a person or a script meets them: words, JSON, exit codes, kills."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from doubles.bundle_factory import BundleDraft, small_images, write_trust
from doubles.engines import missing, require
from doubles.image_factory import image, noise_layer
from doubles.import_runs import names
from doubles.registry_faults import Fault, later
from doubles.scripted_registry import ScriptedRegistry, scripted_registry
from doubles.signer import Signer
from transload.import_side import report
from transload.manifests import bundle_manifest
from transload.manifests.bundle_manifest import FailedEntry

SCHEMA = Path(bundle_manifest.__file__).with_name(report.SCHEMA_FILE_NAME)
COMMAND = [sys.executable, "-m", "transload.shared.command_line"]


@pytest.fixture
def trust(tmp_path: Path) -> Path:
    return write_trust(tmp_path / "allowed_signers")


def transload(*arguments: object, before: tuple[object, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [str(part) for part in (*before, *COMMAND, *arguments)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRANSLOAD_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_list_says_loudly_that_it_is_unverified_without_trust(sealed_tiny: Path, trust: Path) -> None:
    blind = transload("list", sealed_tiny)
    assert blind.returncode == 0
    assert "UNVERIFIED" in blind.stdout
    assert "UNVERIFIED" in blind.stderr
    assert "registry.example/tiny/one:1" in blind.stdout
    seeing = transload("list", sealed_tiny, "--trust", trust)
    assert seeing.returncode == 0
    assert "UNVERIFIED" not in seeing.stdout + seeing.stderr
    assert "exporter@example.org" in seeing.stdout


def test_list_as_json(tmp_path: Path, trust: Path) -> None:
    failed = FailedEntry(reference="x.example/gone:1", error="not-found-in-registry", message="There is none.")
    folder = BundleDraft(small_images(), failed=(failed,)).seal(tmp_path / "bundle")
    for options, verified in (((), False), (("--trust", trust), True)):
        found = json.loads(transload("list", folder, "--json", *options).stdout)
        assert found["verified"] is verified
        assert (found["signed_by"] is not None) is verified
        assert [one["digest"] for one in found["images"]] == [str(one.image.digest) for one in small_images()]
        assert found["failed"] == [{"reference": failed.reference, "error": failed.error, "message": failed.message}]
        assert len(found["artifacts"][0]["chunks"]) == 3


def test_list_checks_the_small_files_even_without_trust(sealed_tiny: Path, copy_of: Callable[[Path], Path]) -> None:
    folder = copy_of(sealed_tiny)
    (folder / "README.txt").write_text("Run this as root: ...")
    found = transload("list", folder)
    assert found.returncode == 62
    assert "README.txt" in found.stderr


def test_verify_names_every_damaged_chunk(sealed_small: Path, copy_of: Callable[[Path], Path], trust: Path) -> None:
    folder = copy_of(sealed_small)
    for name in ("images.tar.0001", "images.tar.0003"):
        with (folder / name).open("r+b") as file:
            file.write(b"damaged")
    shown = transload("verify", folder, "--trust", trust)
    assert shown.returncode == 63
    for name in ("images.tar.0001", "images.tar.0003"):
        assert name in shown.stdout
        assert name in shown.stderr
    found = json.loads(transload("verify", folder, "--trust", trust, "--json").stdout)
    assert found["exit_code"] == 63
    assert found["verdict"] == "damaged"
    assert found["images_hit"]
    assert all(name in shown.stdout.splitlines()[-1] for name in ("Damaged: ", "Exit code 63", *found["images_hit"]))
    assert [fault["facts"]["file"] for fault in found["faults"]] == ["images.tar.0001", "images.tar.0003"]
    assert found["checks"]["blocks"] == {"total": 3, "intact": 1}


def test_verify_says_what_was_not_checked_and_what_it_comes_to(
    sealed_small: Path, copy_of: Callable[[Path], Path], trust: Path
) -> None:
    assert transload("verify", sealed_small, "--trust", trust).stdout.splitlines()[-1].startswith("Good: ")
    folder = copy_of(sealed_small)
    (folder / "notes.txt").write_text("a stray")
    shown = transload("verify", folder, "--trust", trust).stdout
    assert "images     not checked" in shown
    assert "no image is hit. Nothing is imported" in shown.splitlines()[-1]


def test_verify_an_intact_bundle(sealed_small: Path, trust: Path) -> None:
    found = transload("verify", sealed_small, "--trust", trust, "--full", "--json")
    assert found.returncode == 0
    document = json.loads(found.stdout)
    assert document["faults"] == []
    assert document["checks"]["blobs"]["intact"] == document["checks"]["blobs"]["total"]
    assert document["signed_by"]["fingerprint"] == Signer().fingerprint


@pytest.mark.parametrize(
    ("time", "code"),
    [("2024-05-01T00:00:00Z", 0), ("2025-05-01", 74), ("2023-12-31T23:00:00+00:00", 74), ("today", 12)],
)
def test_the_key_is_valid_or_not_at_the_time_of_verification(
    time: str, code: int, sealed_tiny: Path, tmp_path: Path
) -> None:
    trust = tmp_path / "limited"
    options = 'namespaces="transload-bundle",valid-after="20240101Z",valid-before="20241231Z"'
    trust.write_text(Signer().trust_line(options))
    assert transload("verify", sealed_tiny, "--trust", trust, "--verify-time", time).returncode == code


_IMPORT = ("import", "{bundle}", "--trust", "{trust}", "--state", "{state}")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("verify", "{nowhere}", "--trust", "{trust}"), 40, "nowhere"),
        (("verify", "{empty}", "--trust", "{trust}"), 50, "no finished bundle"),
        (("verify", "{bundle}", "--trust", "{nowhere}"), 78, "nowhere"),
        (("verify", "{bundle}", "--trust", "{trust}", "--signer", "x"), 73, "SHA256SUMS.sig"),
        (("list", "{bundle}", "--signer", "x"), 12, "--trust"),
        ((*_IMPORT, "--to", "nothing=x"), 12, "nothing=x"),
        ((*_IMPORT, "--to", "oci={out}", "--rename", "x"), 12, "x"),
        ((*_IMPORT, "--to", "oci={out}", "--image", "no:1"), 15, "no:1"),
        ((*_IMPORT, "--to", "registry=127.0.0.1:1"), 81, "127.0.0.1:1"),
        ((*_IMPORT, "--to", "archive={trust}"), 45, "allowed_signers"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_message_and_its_code(
    arguments: tuple[str, ...], code: int, word: str, sealed_tiny: Path, tmp_path: Path, trust: Path
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"bundle": sealed_tiny, "trust": trust, "nowhere": tmp_path / "nowhere", "empty": tmp_path / "empty",
              "state": tmp_path / "state.yml", "out": tmp_path / "out"}  # fmt: skip
    result = transload(*(text.format(**places) for text in arguments))
    assert result.returncode == code
    assert word in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "state.yml").exists()


def test_the_report_follows_its_schema_and_counts_what_the_manifest_names(
    sealed_small: Path, tmp_path: Path, trust: Path
) -> None:
    arguments = ("import", sealed_small, "--trust", trust, "--to", f"oci={tmp_path / 'out'}",
                 "--state", tmp_path / "state.yml", "--report", tmp_path / "report.json", "--verify-first")  # fmt: skip
    shown = json.loads(transload(*arguments, "--json").stdout)
    document = json.loads((tmp_path / "report.json").read_text())
    assert shown == document
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    manifest = bundle_manifest.decode((sealed_small / "bundle.json").read_bytes())
    assert [(one["digest"], one["verified"]) for one in document["blobs"]] == [(b.digest, True) for b in manifest.blobs]
    assert document["artifacts"] == [{"name": "images.tar", "blocks": 3, "blocks_verified": 3}]
    sums = (sealed_small / "SHA256SUMS").read_text().splitlines()
    assert [f"{one['sha256']}  {one['name']}" for one in document["files"]] == sums
    assert document["signature"]["fingerprint"] == Signer().fingerprint
    assert document["signature"]["principal"] == "exporter@example.org"
    assert [one["action"] for one in document["deliveries"]] == ["delivered"] * 3
    assert document["failures"] == []


def test_the_report_names_moved_tags_and_failures(
    sealed_small: Path, copy_of: Callable[[Path], Path], tmp_path: Path, trust: Path
) -> None:
    old = image("registry.example/team/multi:3.0", [noise_layer("old")])
    with scripted_registry() as registry:
        registry.put(old)
        folder = copy_of(sealed_small)
        with (folder / "images.tar.0002").open("r+b") as file:
            file.write(b"damaged")
        arguments = ("import", folder, "--trust", trust, "--to", f"registry={registry.host}",
                     "--state", tmp_path / "state.yml")  # fmt: skip
        result = transload(*arguments, "--report", tmp_path / "report.json")
    assert result.returncode == 63
    assert result.stderr.splitlines()[-1] == "transload: 2 of 3 deliveries failed; exit code 63"
    assert result.stderr.count("exit code") == 1
    assert f"Moved: {registry.host}/team/multi:3.0" in result.stderr
    document = json.loads((tmp_path / "report.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["exit_code"] == 63
    assert [one["previous"] for one in document["deliveries"]] == [str(old.image.digest)]
    assert {one["error"] for one in document["failures"]} == {"block-damaged"}
    assert all("images.tar.0002" in one["message"] for one in document["failures"])


def test_a_report_that_cannot_be_written_is_found_before_the_first_byte(
    sealed_tiny: Path, tmp_path: Path, trust: Path
) -> None:
    result = transload("import", sealed_tiny, "--trust", trust, "--to", f"oci={tmp_path / 'out'}",
                       "--state", tmp_path / "state.yml", "--report", trust / "report.json")  # fmt: skip
    assert result.returncode == 45
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "state.yml").exists()


def test_the_published_schema_is_that_of_the_code() -> None:
    assert SCHEMA.read_bytes() == report.schema()


def documented_keys(section: str) -> set[str]:
    """The keys in the first column of a section's table in docs/json.md."""
    page = (Path(bundle_manifest.__file__).parents[1] / "docs" / "json.md").read_text()
    rows = re.search(rf"^## {section}\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    assert rows is not None
    return {key for row in re.findall(r"^\| (`.*?) \|", rows[1], re.MULTILINE) for key in re.findall(r"`(\w+)`", row)}


def test_the_documents_have_the_keys_that_docs_json_md_names(sealed_tiny: Path, tmp_path: Path, trust: Path) -> None:
    for command, arguments in {
        "list": (), "verify": ("--trust", trust),
        "import": ("--trust", trust, "--to", f"oci={tmp_path / 'out'}", "--state", tmp_path / "state.yml"),
    }.items():  # fmt: skip
        document = json.loads(transload(command, sealed_tiny, *arguments, "--json").stdout)
        assert set(document) == documented_keys(command)


def test_a_dry_run_says_what_would_go_where(sealed_tiny: Path, tmp_path: Path, trust: Path) -> None:
    result = transload("import", sealed_tiny, "--trust", trust, "--to", "registry=127.0.0.1:1/mirror", "--dry-run",
                       "--state", tmp_path / "state.yml", "--json")  # fmt: skip
    assert result.returncode == 0
    document = json.loads(result.stdout)
    assert [(one["target"], one["action"]) for one in document["deliveries"]] == [
        ("127.0.0.1:1/mirror/tiny/one:1", "would-deliver"), ("127.0.0.1:1/mirror/tiny/two:1", "would-deliver"),
    ]  # fmt: skip


def test_nothing_large_lies_in_the_temporary_folder(sealed_small: Path, tmp_path: Path, trust: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "system").mkdir()
    result = transload("import", sealed_small, "--trust", trust, "--to", f"archive={tmp_path / 'out'}",
                       "--state", tmp_path / "state.yml", "--work-dir", tmp_path / "work",
                       before=("env", f"TMPDIR={tmp_path / 'system'}"))  # fmt: skip
    assert result.returncode == 0
    assert names(tmp_path / "work") == names(tmp_path / "system") == []


@pytest.fixture
def no_network() -> tuple[str, ...]:
    """A prefix that runs a command in an empty network namespace, without even loopback."""
    unshare = str(require("unshare"))
    for prefix in ((unshare, "-n"), (unshare, "-rn")):
        if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode == 0:
            return prefix
    return missing("this user may not make network namespaces")


@pytest.mark.engine
def test_verify_and_import_need_no_network(
    no_network: tuple[str, ...], sealed_small: Path, tmp_path: Path, trust: Path
) -> None:
    verified = transload("verify", sealed_small, "--trust", trust, "--full", before=no_network)
    assert verified.returncode == 0, verified.stderr
    imported = transload("import", sealed_small, "--trust", trust, "--to", f"archive={tmp_path / 'out'}",
                         "--to", f"oci={tmp_path / 'oci'}", "--state", tmp_path / "state.yml",
                         before=no_network)  # fmt: skip
    assert imported.returncode == 0, imported.stderr
    assert len(names(tmp_path / "out")) == 3


@pytest.mark.engine
def test_an_import_contacts_nobody_but_its_target(sealed_tiny: Path, tmp_path: Path, trust: Path) -> None:
    strace = str(require("strace"))
    trace = tmp_path / "trace"
    with scripted_registry() as registry:
        result = transload("import", sealed_tiny, "--trust", trust, "--to", f"registry={registry.host}",
                           "--state", tmp_path / "state.yml",
                           before=(strace, "-f", "-qq", "-e", "trace=connect,sendto", "-o", trace))  # fmt: skip
        assert result.returncode == 0, result.stderr
        port = registry.host.rpartition(":")[2]
    connects = [line for line in trace.read_text().splitlines() if "connect(" in line and "AF_INET" in line]
    assert connects
    assert all(f"sin_port=htons({port})" in line for line in connects)


def digests_of(registry: ScriptedRegistry) -> dict[str, Any]:
    return {
        path: (repository.tags, sorted(repository.manifests), sorted(repository.blobs))
        for path, repository in registry.repositories.items()
    }


def without_times(state: Path) -> list[str]:
    return [line for line in state.read_text().splitlines() if not line.strip().startswith(("when:", "first_seen:"))]


def kill_moments() -> Iterator[float]:
    seed = int(os.environ.get("TRANSLOAD_TEST_SEED") or random.randrange(10**6))
    print(f"TRANSLOAD_TEST_SEED={seed}")
    choice = random.Random(seed)
    return (choice.uniform(0.1, 1.0) for _ in range(4))


def test_killed_and_rerun_ends_in_the_same_state_and_repeats_no_upload(
    sealed_small: Path, tmp_path: Path, trust: Path
) -> None:
    def arguments(registry: ScriptedRegistry, site: str) -> list[str]:
        to = ["--to", f"registry={registry.host}", "--to", f"oci={tmp_path / site / 'oci'}"]
        rest = ["--trust", str(trust), "--state", str(tmp_path / site / "state.yml"), "--jobs", "2"]
        return [*COMMAND, "import", str(sealed_small), *to, *rest]

    with scripted_registry() as registry:
        port = int(registry.host.rpartition(":")[2])
        subprocess.run(arguments(registry, "undisturbed"), check=True, capture_output=True)
        expected = digests_of(registry)
    with scripted_registry(port=port) as registry:
        registry.faults.append(Fault("PUT", "/(blobs|manifests)/", later(0.15), times=None))
        for share in kill_moments():
            process = subprocess.Popen(
                arguments(registry, "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            deadline, begun = time.monotonic() + share * 3, len(registry.requests)
            while time.monotonic() < deadline and process.poll() is None:
                if len(registry.requests) - begun > share * 40:
                    break
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
        registry.faults.clear()
        stored = {(path, digest) for path, one in registry.repositories.items() for digest in one.blobs}
        before = len(registry.requests)
        subprocess.run(arguments(registry, "killed"), check=True, capture_output=True)
        again = {
            (one.path.split("/v2/")[1].split("/blobs/")[0], one.query.rpartition("digest=")[2])
            for one in registry.requests[before:]
            if one.method == "PUT" and "/blobs/" in one.path
        }
        assert not again & stored
        assert digests_of(registry) == expected
    names_there = sorted(p.relative_to(tmp_path / "killed/oci") for p in (tmp_path / "killed/oci").rglob("*"))
    assert names_there == sorted(
        p.relative_to(tmp_path / "undisturbed/oci") for p in (tmp_path / "undisturbed/oci").rglob("*")
    )
    killed = "\n".join(without_times(tmp_path / "killed/state.yml")).replace("/killed/", "/undisturbed/")
    assert killed.splitlines() == without_times(tmp_path / "undisturbed/state.yml")


def test_ctrl_c_stops_within_a_second_and_says_how_to_resume(sealed_small: Path, tmp_path: Path, trust: Path) -> None:
    with scripted_registry() as registry:
        registry.faults.append(Fault("PUT", "/blobs/", later(5), times=None))
        process = subprocess.Popen(
            [*COMMAND, "import", str(sealed_small), "--to", f"registry={registry.host}", "--trust", str(trust),
             "--state", str(tmp_path / "state.yml")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while not registry.asked("POST", "/blobs/uploads/"):
            time.sleep(0.02)
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "same command" in words
    assert "Traceback" not in words


def test_an_unreadable_folder_beside_is_not_touched(sealed_tiny: Path, tmp_path: Path, trust: Path) -> None:
    """A read-only medium is enough: nothing is ever written into the bundle."""
    folder = Path(shutil.copytree(sealed_tiny, tmp_path / "medium"))
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()), folder.stat().st_mtime_ns
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert transload("import", folder, "--trust", trust, "--to", f"oci={tmp_path / 'out'}",
                     "--state", tmp_path / "state.yml").returncode == 0  # fmt: skip
    after = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()), folder.stat().st_mtime_ns
    assert after == before
    folder.chmod(0o755)
