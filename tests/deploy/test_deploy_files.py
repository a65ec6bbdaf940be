"""deploy/: Kubernetes manifests against the API's schemas, systemd units by systemd itself, the Dockerfile's rules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from doubles.engines import require
from transload.export_side.replicator.cli import ENVIRONMENT_PREFIX, replicate

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = [one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / "ngc-replicator.yml").read_text()) if one]
BY_KIND: dict[str, Any] = {one["kind"]: one for one in MANIFESTS}


def test_there_is_a_cron_job_with_secret_configuration_and_volume_claim() -> None:
    assert list(BY_KIND) == ["Namespace", "Secret", "ConfigMap", "PersistentVolumeClaim", "CronJob"]
    assert BY_KIND["CronJob"]["apiVersion"] == "batch/v1"  # v1beta1, of the old one's page, is gone since 1.25


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: one["kind"])
def test_manifests_fit_the_newest_schemas(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_schema_checker_would_see_a_fault() -> None:
    broken = {**BY_KIND["CronJob"], "spec": {**BY_KIND["CronJob"]["spec"], "shedule": "x"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)


def test_the_parts_name_each_other() -> None:
    pod = BY_KIND["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    named = {
        "ConfigMap": container["envFrom"][0]["configMapRef"]["name"],
        "Secret": container["envFrom"][1]["secretRef"]["name"],
        "PersistentVolumeClaim": pod["volumes"][0]["persistentVolumeClaim"]["claimName"],
    }
    assert named == {kind: BY_KIND[kind]["metadata"]["name"] for kind in named}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert len({one["metadata"].get("namespace", one["metadata"]["name"]) for one in MANIFESTS}) == 1
    assert pod["securityContext"]["runAsUser"] != 0
    assert "hostPath" not in str(pod)  # no Docker socket


def variables() -> set[str]:
    names = {parameter.name for parameter in replicate.params} | {"image"}  # `images` in Python
    return {f"{ENVIRONMENT_PREFIX}_{name}".upper() for name in names if name}


def test_every_variable_is_an_option() -> None:
    named = set(BY_KIND["ConfigMap"]["data"]) | set(BY_KIND["Secret"]["stringData"])
    for unit in (DEPLOY / "systemd").iterdir():
        named |= set(re.findall(r"\bNGC_REPLICATOR_\w+", unit.read_text()))
    named |= set(re.findall(r"\bNGC_REPLICATOR_\w+", (DEPLOY / "Dockerfile").read_text()))
    assert named <= variables()


@pytest.mark.engine
def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    program = tmp_path / "ngc_replicator"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in (DEPLOY / "systemd").iterdir():
        text = unit.read_text().replace("/usr/local/bin/ngc_replicator", str(program))
        (tmp_path / unit.name).write_text(text)
    units = sorted(str(path) for path in tmp_path.glob("ngc-replicator.*"))
    assert len(units) == 2
    found = subprocess.run(
        [require("systemd-analyze"), "verify", *units], capture_output=True, text=True, check=False
    )  # fmt: skip
    about_ours = [line for line in found.stderr.splitlines() if "ngc" in line]
    assert (found.returncode, about_ours) == (0, [])


def instructions() -> list[list[str]]:
    text = re.sub(r"\\\n\s*", " ", (DEPLOY / "Dockerfile").read_text())
    return [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]


def test_the_image_is_not_run_by_root_and_starts_the_replicator() -> None:
    final = instructions()[max(i for i, one in enumerate(instructions()) if one[0] == "FROM") :]
    last = dict(final)
    assert last["USER"] == "65532:65532"
    assert last["ENTRYPOINT"] == '["ngc_replicator"]'
    assert last["VOLUME"] == '["/output"]'
    assert not [one for one in final if one[0] == "ADD" or (one[0] == "COPY" and not one[1].startswith("--from="))]
