"""The catalogue, read from a double that has NGC's quirks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from doubles.clients import NotingStop
from doubles.ngc import Entry, NgcDouble, running_ngc
from doubles.registry_faults import Fault, answer, cut_after, html
from transload.export_side.ngc.catalog import NgcCatalog
from transload.shared.errors import (
    InvalidConfiguration,
    NothingSelected,
    RegistryBusy,
    RegistryLoginRefused,
    RegistryProtocolError,
)

LEGACY_KEY, NVAPI_KEY = 'bGVn:YWN5"$%ü', "nvapi-secret-1234"


@pytest.fixture
def ngc() -> Iterator[NgcDouble]:
    with running_ngc() as double:
        for entry in (
            Entry(
                "nvidia/pytorch", "PyTorch", "A framework.", "https://example.com/licence", tags={"24.01-py3": ("", 1)}
            ),
            Entry("nvidia/tensorflow", "TensorFlow"),
            Entry("nvidia/teamx/model-a"),
            Entry("nvidia/secret", is_public=False),
            Entry("hpc/gromacs"),
            Entry(
                "mine/private", is_public=False, tags={"1.0": ("2024-01-15T10:00:00.123Z", 1234), "2.0": (None, "x")}
            ),
        ):
            double.entries[entry.path] = entry
        double.keys = {LEGACY_KEY: {"mine"}, NVAPI_KEY: {"mine", "nvidia"}}
        yield double


def catalog_of(ngc: NgcDouble, key: str | None = None) -> NgcCatalog:
    return NgcCatalog(api_base=ngc.api.url, auth_base=ngc.auth.url, api_key=key, stop=NotingStop())


def paths(catalog: NgcCatalog, project: str) -> list[str]:
    return [image.path for image in catalog.images(project)]


def test_without_a_key_the_public_search_is_read_to_its_last_page(ngc: NgcDouble) -> None:
    ngc.page_size = 2
    catalog = catalog_of(ngc)
    assert paths(catalog, "nvidia") == ["nvidia/pytorch", "nvidia/teamx/model-a", "nvidia/tensorflow"]
    assert len(ngc.api.asked("GET", "/search/")) == 2
    assert all("authorization" not in request.headers for request in ngc.api.requests)
    assert ngc.auth.requests == []


def test_what_the_catalogue_says_of_an_image(ngc: NgcDouble) -> None:
    image = catalog_of(ngc).images("nvidia")[0]
    assert (image.display_name, image.description) == ("PyTorch", "A framework.")
    assert (image.license_url, image.latest_tag) == ("https://example.com/licence", "24.01-py3")


@pytest.mark.parametrize("key", [LEGACY_KEY, NVAPI_KEY])
def test_with_a_key_private_images_are_listed_page_by_page(ngc: NgcDouble, key: str) -> None:
    ngc.page_size = 1
    ngc.entries["mine/team/deep/model"] = Entry("mine/team/deep/model", is_public=False)
    assert paths(catalog_of(ngc, key), "mine") == ["mine/private", "mine/team/deep/model"]
    assert bool(ngc.auth.requests) is (key == LEGACY_KEY)  # nvapi- keys are Bearer tokens themselves


def test_one_team_of_an_organisation(ngc: NgcDouble) -> None:
    assert paths(catalog_of(ngc), "nvidia/teamx") == ["nvidia/teamx/model-a"]


def test_a_key_of_another_organisation_still_finds_what_is_public(ngc: NgcDouble) -> None:
    catalog = catalog_of(ngc, LEGACY_KEY)
    assert paths(catalog, "hpc") == ["hpc/gromacs"]
    assert "may not list hpc" in catalog.notes[0]


@pytest.mark.parametrize("key", ["nvapi-wrong", "d3Jvbmc6"])
def test_a_wrong_or_expired_key_is_refused_by_name_and_never_shown(ngc: NgcDouble, key: str) -> None:
    with pytest.raises(RegistryLoginRefused, match="wrong or has expired") as refused:
        catalog_of(ngc, key).images("nvidia")
    assert "NGC_API_KEY" in refused.value.hint
    assert key not in str(refused.value.as_json())


def test_an_organisation_that_is_closed_to_the_key(ngc: NgcDouble) -> None:
    ngc.entries["closed/thing"] = Entry("closed/thing", is_public=False)
    with pytest.raises(RegistryLoginRefused, match="403"):
        catalog_of(ngc, NVAPI_KEY).images("closed")


def test_a_token_that_runs_out_between_pages_is_renewed(ngc: NgcDouble) -> None:
    ngc.page_size, ngc.token_uses = 1, 2
    for number in range(5):
        ngc.entries[f"mine/m{number}"] = Entry(f"mine/m{number}")
    assert len(paths(catalog_of(ngc, LEGACY_KEY), "mine")) == 6
    assert len(ngc.auth.requests) == 3


@pytest.mark.parametrize(("key", "hint"), [(None, "need an API key"), (NVAPI_KEY, "belongs to: mine, nowhere, nvidia")])
def test_a_project_that_does_not_exist(ngc: NgcDouble, key: str | None, hint: str) -> None:
    if key:
        ngc.keys[key].add("nowhere")
    with pytest.raises(NothingSelected, match="nowhere") as nothing:
        catalog_of(ngc, key).images("nowhere")
    assert hint in nothing.value.hint


def test_a_team_that_does_not_exist_names_those_that_do(ngc: NgcDouble) -> None:
    with pytest.raises(NothingSelected) as nothing:
        catalog_of(ngc).images("nvidia/team")
    assert "nvidia, nvidia/teamx" in nothing.value.hint


@pytest.mark.parametrize("project", ["", "Nvidia", "../nvidia", 'nvidia"', "a//b", "nvidia/"])
def test_text_that_is_no_project(ngc: NgcDouble, project: str) -> None:
    with pytest.raises(InvalidConfiguration):
        catalog_of(ngc).images(project)


def test_entries_of_the_wrong_shape_are_named_by_url_and_field_and_the_others_go_on(ngc: NgcDouble) -> None:
    ngc.odd_resources = [
        None,
        "text",
        {"displayName": "no id"},
        {"resourceId": None},
        {"resourceId": {"id": "nvidia/x"}},
        {"resourceId": "nvidia/Upper"},
        {"resourceId": "nvidia/odd", "description": {"en": "now a dict"}, "attributes": None},
        {"resourceId": "nvidia/odder", "attributes": [None, {"key": "latestTag", "value": 7}]},
    ]
    catalog = catalog_of(ngc)
    assert {"nvidia/odd", "nvidia/odder", "nvidia/pytorch"} <= set(paths(catalog, "nvidia"))
    url = f"{ngc.api.url}/v2/search/catalog/resources/CONTAINER (page 0)"
    assert catalog.problems == [
        f"{url}: results[0].resources[3] is missing or null where an object is expected.",
        f"{url}: results[0].resources[4] is text where an object is expected.",
        f"{url}: results[0].resources[5].resourceId is missing or null where text is expected.",
        f"{url}: results[0].resources[6].resourceId is missing or null where text is expected.",
        f"{url}: results[0].resources[7].resourceId is an object where text is expected.",
        f"{url}: results[0].resources[8].resourceId is 'nvidia/Upper', which is no repository.",
        f"{url}: results[0].resources[9].description is an object where text is expected.",
        f"{url}: results[0].resources[10].attributes[0] is missing or null where an object is expected.",
        f"{url}: results[0].resources[10].attributes[1].value is a number where text is expected.",
    ]


def test_odd_entries_of_an_organisation(ngc: NgcDouble) -> None:
    ngc.odd_repositories = [{"namespace": None, "name": "x"}, {"namespace": "mine", "name": ["x"]}, 5]
    catalog = catalog_of(ngc, NVAPI_KEY)
    assert paths(catalog, "mine") == ["mine/private"]
    assert [problem.rpartition("repos (page 0): ")[2] for problem in catalog.problems] == [
        "repositories[1].namespace is missing or null where text is expected.",
        "repositories[2].name is a list where text is expected.",
        "repositories[3] is a number where an object is expected.",
    ]


def test_details_of_tags(ngc: NgcDouble) -> None:
    details = catalog_of(ngc, LEGACY_KEY).tag_details("mine/private")
    assert str(details["1.0"].updated) == "2024-01-15 10:00:00+00:00"
    assert details["1.0"].size_bytes == 1234
    assert (details["2.0"].updated, details["2.0"].size_bytes) == (None, None)
    assert catalog_of(ngc).tag_details("nvidia/pytorch") == {}


def test_one_repository_whose_details_cannot_be_read_is_a_problem_and_no_more(ngc: NgcDouble) -> None:
    ngc.api.faults.append(Fault("GET", "repos/private/images", answer(400, b"oops")))
    catalog = catalog_of(ngc, NVAPI_KEY)
    assert catalog.tag_details("mine/private") == {}
    assert "mine/repos/private/images answers with 400" in catalog.problems[0]


def test_pages_of_a_bad_gateway_are_tried_again(ngc: NgcDouble) -> None:
    ngc.api.faults.append(Fault("GET", "search", html(502), times=2))
    ngc.api.faults.append(Fault("GET", "search", answer(429, retry_after="7")))
    ngc.api.faults.append(Fault("GET", "search", cut_after(20)))
    catalog = catalog_of(ngc)
    assert "nvidia/pytorch" in paths(catalog, "nvidia")
    assert len(ngc.api.requests) == 5


def test_a_gateway_that_stays_bad_ends_the_run_with_what_to_do(ngc: NgcDouble) -> None:
    ngc.api.faults.append(Fault("GET", "search", html(502), times=None))
    with pytest.raises(RegistryBusy, match="502"):
        catalog_of(ngc).images("nvidia")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>portal</html>", "HTML page"),
        (b'{"resultPageTotal":1}', "the field results is missing or null"),
        (b"[]", "a list and not an object"),
        (b'{"resultPageTotal":999999,"results":[]}', "999,999 pages"),
    ],
)
def test_what_is_no_catalogue_at_all(ngc: NgcDouble, body: bytes, why: str) -> None:
    ngc.api.faults.append(Fault("GET", "search", answer(200, body), times=None))
    with pytest.raises(RegistryProtocolError, match=why) as error:
        catalog_of(ngc).images("nvidia")
    assert "/v2/search/catalog/resources/CONTAINER" in error.value.message


@pytest.mark.parametrize("url", ["http://api.ngc.example", "ftp://127.0.0.1", "https://user@api.ngc.example", "nvidia"])
def test_a_key_goes_to_https_or_loopback_alone(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="Not a URL"):
        NgcCatalog(api_base=url, api_key="k", stop=NotingStop())
