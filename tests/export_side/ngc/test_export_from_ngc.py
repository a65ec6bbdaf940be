"""`transload export --ngc`, lists with `ngc:` entries, and `transload ngc list`, against NGC's double."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from doubles.export_runs import ExportRuns, manifest_of
from doubles.image_factory import image, index, noise_layer
from doubles.ngc import NgcDouble, running_ngc
from doubles.registry_faults import Fault, answer, html
from transload.shared.command_line import cli
from transload.shared.errors import NothingSelected, RegistryLoginRefused, TransloadError

KEY = "nvapi-very-secret-key"
PYTORCH = ["23.12-py3", "24.01-py3", "24.02-py3", "24.03-py3", "24.03-py3-igpu", "latest", "29Oct2020"]


@pytest.fixture
def ngc(monkeypatch: pytest.MonkeyPatch) -> Iterator[NgcDouble]:
    with running_ngc() as double:
        base = noise_layer("ngc-base", 20_000)
        for number, tag in enumerate(PYTORCH):
            about = {"description": "# PyTorch\n\nDeep learning.", "license_url": "https://example.com/licence"}
            made = image("x", [base, noise_layer(f"ngc-{tag}", 3000)])
            double.publish(made, "nvidia/pytorch", tag, updated=f"2024-0{number + 1}-01T00:00:00Z", **about)
        double.publish(image("x", [base]), "nvidia/l4t-pytorch", "r35.2.1-pth2.0-py3")
        double.publish(image("x", [base, noise_layer("a")]), "nvidia/model-a", "1.0")
        double.publish(image("x", [base, noise_layer("b")]), "nvidia/teamx/model-a", "1.0")
        double.publish(image("x", [noise_layer("secret")]), "mine/private", "1.0", is_public=False)
        double.keys = {KEY: {"mine"}}
        for name, value in double.environment.items():
            monkeypatch.setenv(name, value)
        yield double


@pytest.fixture
def runs(tmp_path: Path) -> ExportRuns:
    return ExportRuns(tmp_path / "out")


def call(runs: ExportRuns, *arguments: str) -> int:
    """The command, in this process."""
    code = cli.main(runs.command(*arguments), prog_name="transload", standalone_mode=False)
    assert isinstance(code, int)
    return code


def exported(runs: ExportRuns) -> list[str]:
    return [entry.reference.partition("/")[2] for entry in manifest_of(runs.bundles()[-1]).images]


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, object]]:
    capsys.readouterr()
    cli.main(["ngc", "list", "--json", *arguments], prog_name="transload", standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    return {row["repository"].partition("/")[2]: row for row in document["repositories"]}


def test_the_newest_of_one_image_by_its_exact_name(ngc: NgcDouble, runs: ExportRuns) -> None:
    arguments = ["--ngc", "--image", "pytorch", "--min-version", "24.01", "--keep-last", "2", "--exclude", "igpu"]
    assert call(runs, *arguments) == 0
    assert exported(runs) == ["nvidia/pytorch:24.02-py3", "nvidia/pytorch:24.03-py3"]


def test_a_part_of_a_name_is_enough_if_asked_for(ngc: NgcDouble, runs: ExportRuns) -> None:
    call(runs, "--ngc", "--image", "pytorch", "--no-strict-name-match", "--py-version", "py3", "--keep-last", "1")
    assert exported(runs) == ["nvidia/l4t-pytorch:r35.2.1-pth2.0-py3", "nvidia/pytorch:24.03-py3-igpu"]


def test_repositories_of_teams_are_other_ones(ngc: NgcDouble, runs: ExportRuns) -> None:
    call(runs, "--ngc", "--image", "model-a", "--image", "teamx/model-a")
    assert exported(runs) == ["nvidia/model-a:1.0", "nvidia/teamx/model-a:1.0"]


def test_private_images_with_the_key_from_the_environment_alone(
    ngc: NgcDouble, runs: ExportRuns, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NGC_API_KEY", KEY)
    assert call(runs, "--ngc", "--project", "mine") == 0
    assert exported(runs) == ["mine/private:1.0"]
    assert KEY not in "".join(capfd.readouterr())
    assert not any(KEY.encode() in path.read_bytes() for path in runs.output.rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("key", [KEY, "nvapi-wrong-secret"])
def test_the_key_is_in_no_log_however_much_is_told(
    ngc: NgcDouble, runs: ExportRuns, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("NGC_API_KEY", key)
    done = runs.call("--ngc", "--project", "mine", "-vvv", "--json")
    assert done.returncode == (0 if key == KEY else 23)
    assert key not in done.stdout + done.stderr
    assert not any(key.encode() in path.read_bytes() for path in runs.output.rglob("*") if path.is_file())


def test_the_key_from_a_file_or_variable_of_the_registry(
    ngc: NgcDouble, runs: ExportRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    login = f"{ngc.registry.host}=$oauthtoken:{tmp_path / 'key'}"
    assert call(runs, "--ngc", "--project", "mine", "--login", login) == 0
    port = ngc.registry.host.rpartition(":")[2]
    monkeypatch.setenv(f"TRANSLOAD_PASSWORD_127_0_0_1_{port}", KEY)
    assert call(runs, "--ngc", "--project", "mine", "--again") == 0
    assert len(runs.bundles()) == 2


def test_tokens_that_live_for_three_requests_and_the_trap_of_the_other_realm(ngc: NgcDouble, runs: ExportRuns) -> None:
    ngc.token_uses = 3
    assert call(runs, "--ngc", "--image", "pytorch", "--keep-last", "5", "--jobs", "1") == 0
    assert len(exported(runs)) == 5
    assert ngc.auth.requests == []


def test_entries_of_an_image_list(ngc: NgcDouble, runs: ExportRuns, tmp_path: Path) -> None:
    (tmp_path / "images.yml").write_text(
        "images:\n"
        "  - ngc: {images: [pytorch], min_version: '24.01', keep_last: 1, exclude: igpu}\n"
        "  - ngc: {project: nvidia/teamx}\n"
        f"  - repository: {ngc.registry.host}/nvidia/l4t-pytorch\n"
        "    min_version: '30.0'\n"
    )
    call(runs, "--images", str(tmp_path / "images.yml"))
    assert exported(runs) == [
        "nvidia/l4t-pytorch:r35.2.1-pth2.0-py3",
        "nvidia/pytorch:24.03-py3",
        "nvidia/teamx/model-a:1.0",
    ]


def test_the_rules_hold_for_any_registry(ngc: NgcDouble, runs: ExportRuns) -> None:
    call(runs, "--repository", f"{ngc.registry.host}/nvidia/pytorch", "--keep-last", "1", "--exclude", "igpu")
    assert exported(runs) == ["nvidia/pytorch:24.03-py3"]
    assert ngc.api.requests == []


def test_dates_come_from_the_listing_or_from_the_images_own_config(
    ngc: NgcDouble, runs: ExportRuns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recent = datetime.now(timezone.utc) - timedelta(days=3)
    new = image("x", [noise_layer("new")], config_changes={"created": f"{recent:%Y-%m-%dT%H:%M:%S}.123456789Z"})
    undated = image("x", [noise_layer("undated")], config_changes={"created": "1970-01-01T00:00:00Z"})
    ngc.publish(index("x", [new]), "nvidia/dated", "2.0")
    ngc.publish(undated, "nvidia/dated", "3.0")
    ngc.publish(image("x", [noise_layer("old")]), "nvidia/dated", "1.0")  # created 2024-01-01
    row = listed(capsys, "--image", "dated", "--since-days", "30")["nvidia/dated"]
    assert row["tags"] == ["2.0"]
    assert row["excluded"] == {"3.0": "no date is known", "1.0": "of 2024-01-01"}
    monkeypatch.setenv("NGC_API_KEY", KEY)
    ngc.keys[KEY].add("nvidia")
    ngc.entries["nvidia/dated"].tags["1.0"] = (f"{recent:%Y-%m-%dT%H:%M:%SZ}", 1)
    ngc.entries["nvidia/dated"].tags["2.0"] = (None, None)
    row = listed(capsys, "--image", "dated", "--since-days", "30")["nvidia/dated"]
    assert row["tags"] == ["2.0", "1.0"]


def test_the_list_names_what_matches_what_is_unreadable_what_is_new_and_sizes(
    ngc: NgcDouble, runs: ExportRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    call(runs, "--ngc", "--image", "pytorch", "--min-version", "24.03", "--exclude", "igpu")
    here = ["--image", "pytorch", "--min-version", "24.02", "--exclude", "igpu", "--output-path", str(runs.output)]
    row = listed(capsys, *here, "--sizes")["nvidia/pytorch"]
    assert row["tags"] == ["24.03-py3", "24.02-py3"]
    assert row["unparsed"] == ["29Oct2020", "latest"]
    assert row["new"] == ["24.02-py3"]
    blobs: dict[str, int] = {}
    for tag in ("24.03-py3", "24.02-py3"):
        repository = ngc.registry.repositories["nvidia/pytorch"]
        _, raw = repository.manifests[repository.tags[tag]]
        manifest = json.loads(raw)
        blobs[repository.tags[tag]] = len(raw)
        blobs.update({one["digest"]: one["size"] for one in (manifest["config"], *manifest["layers"])})
    assert row["size_bytes"] == sum(blobs.values())
    cli.main(["ngc", "list", *here, "--quiet"], prog_name="transload", standalone_mode=False)
    table = capsys.readouterr().out
    assert "[29Oct2020], [latest]" in table
    assert "1 repositories, 2 tags chosen, 1 of them in no bundle yet." in table


def test_a_moved_tag_is_new_again(ngc: NgcDouble, runs: ExportRuns, capsys: pytest.CaptureFixture[str]) -> None:
    call(runs, "--ngc", "--image", "model-a")
    here = ["--image", "model-a", "--output-path", str(runs.output)]
    assert listed(capsys, *here)["nvidia/model-a"]["new"] == []
    ngc.publish(image("x", [noise_layer("moved")]), "nvidia/model-a", "1.0")
    assert listed(capsys, *here)["nvidia/model-a"]["new"] == ["1.0"]


def test_five_thousand_tags_in_pages(ngc: NgcDouble, capsys: pytest.CaptureFixture[str]) -> None:
    ngc.publish(image("x", [noise_layer("many")]), "nvidia/many", "1.0")
    repository = ngc.registry.repositories["nvidia/many"]
    digest = repository.tags["1.0"]
    repository.tags = {f"{number // 100}.{number % 100}-py3": digest for number in range(5000)}
    ngc.registry.page_size = 100
    row = listed(capsys, "--image", "many", "--keep-last", "2")["nvidia/many"]
    assert row["tags"] == ["49.99-py3", "49.98-py3"]
    assert len(ngc.registry.asked("GET", "/many/tags/list")) <= 52


def test_a_name_that_nothing_has_names_what_is_near(ngc: NgcDouble, runs: ExportRuns) -> None:
    with pytest.raises(NothingSelected, match="no image called pytorhc") as nothing:
        call(runs, "--ngc", "--image", "pytorhc")
    assert "pytorch" in nothing.value.hint
    with pytest.raises(NothingSelected, match="nowhere"):
        call(runs, "--ngc", "--project", "nowhere")
    with pytest.raises(NothingSelected, match="none of its 7 tags fits"):
        call(runs, "--ngc", "--image", "pytorch", "--min-version", "99")


def test_a_project_that_fails_leaves_the_other_images(ngc: NgcDouble, runs: ExportRuns) -> None:
    reference = f"{ngc.registry.host}/nvidia/model-a:1.0"
    assert call(runs, "--ngc", "--project", "nowhere", reference) == 3
    assert exported(runs) == ["nvidia/model-a:1.0"]
    assert [one.reference for one in manifest_of(runs.bundles()[0]).failed] == ["NGC project nowhere"]


def test_a_wrong_key_is_refused_before_anything_is_fetched(
    ngc: NgcDouble, runs: ExportRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGC_API_KEY", "nvapi-wrong")
    with pytest.raises(RegistryLoginRefused, match="wrong or has expired"):
        call(runs, "--ngc", "--image", "pytorch")
    assert ngc.registry.requests == []


def test_odd_entries_and_bad_gateways_on_the_way_do_not_stop_an_export(
    ngc: NgcDouble, runs: ExportRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    ngc.odd_resources = [None, {"resourceId": {"a": 1}}]
    ngc.api.faults.append(Fault("GET", "search", html(502)))
    ngc.registry.faults.append(Fault("GET", "proxy_auth", html(502)))
    ngc.registry.faults.append(Fault("GET", "/blobs/", answer(429, retry_after="1")))
    assert call(runs, "--ngc", "--image", "model-a") == 0
    assert "resourceId is an object where text is expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--image", "pytorch"], "choose from NGC's catalogue"),
        (["--keep-last", "2"], "nothing to be applied to"),
        (["--ngc", "--min-version", "latest"], "no version"),
        (["--ngc", "--exclude", "("], "no regular expression"),
        (["--repository", "host/a:1"], "has a tag"),
        (["--ngc", "--ngc-api-url", "http://ngc.example"], "Not a URL"),
    ],
)
def test_options_that_make_no_sense(runs: ExportRuns, arguments: list[str], why: str) -> None:
    with pytest.raises(TransloadError, match=why) as error:
        call(runs, *arguments)
    assert error.value.exit_code == 12
