"""Pushing with the bytes and digests that came out of the bundle, to real registries and to one that misbehaves."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from doubles.bundle_factory import BundleDraft, small_images, tiny_images
from doubles.image_factory import ImageDouble, image, noise_layer
from doubles.import_runs import actions, run_import, state_of
from doubles.registries import RunningRegistry, plain_registry, tls_registry, token_registry
from doubles.registry_faults import Fault, Reply, Request, Serve, answer, cut_after, reset
from doubles.scripted_registry import ScriptedRegistry, scripted_registry
from transload.shared import errors
from transload.shared.image import INDEX_TYPES
from transload.shared.registry.credentials import Login
from transload.shared.registry.options import RegistryDirectory


@pytest.fixture
def scripted() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as registry:
        yield registry


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return BundleDraft(tiny_images()).seal(tmp_path / "tiny")


def pulled(registry: RunningRegistry, path: str, version: str) -> bytes:
    """A manifest as another client sees it."""
    accept = ", ".join((*INDEX_TYPES, "application/vnd.oci.image.manifest.v1+json",
                        "application/vnd.docker.distribution.manifest.v2+json"))  # fmt: skip
    request = urllib.request.Request(f"{registry.url}/v2/{path}/manifests/{version}", headers={"Accept": accept})
    with urllib.request.urlopen(request) as response:
        return bytes(response.read())


def assert_holds(registry: RunningRegistry, double: ImageDouble, path: str) -> None:
    """Byte for byte: the documents under tag and digest, and every blob in the repository."""
    assert registry.storage.tagged(path, double.image.name.tag or "") == str(double.image.digest)
    documents = {document.digest for document in double.image.documents}
    for digest, raw in double.blobs.items():
        assert registry.storage.blob(digest) == raw
        if digest not in documents:
            assert registry.storage.holds(path, digest)


@pytest.mark.engine
def test_single_images_and_whole_indexes_arrive_byte_for_byte_and_a_second_import_uploads_nothing(
    sealed_small: Path, tmp_path: Path
) -> None:
    with plain_registry(tmp_path / "registry") as registry:
        to = f"registry={registry.host}/mirror"
        result = run_import(sealed_small, tmp_path / "state.yml", to)
        assert actions(result) == ["delivered"] * 3
        for double in small_images():
            path = f"mirror/{double.image.name.path}"
            assert_holds(registry, double, path)
            assert pulled(registry, path, double.image.name.tag or "") == double.image.root.raw
            for document in double.image.documents:
                assert pulled(registry, path, str(document.digest)) == document.raw
        writes = len(registry.requests('"(POST|PUT|PATCH) '))
        blobs = len(registry.requests('"(GET|HEAD) /v2/[^ ]*/blobs/'))
        before = (tmp_path / "state.yml").read_bytes()
        again = run_import(sealed_small, tmp_path / "state.yml", to)
        assert actions(again) == ["already-there"] * 3
        assert len(registry.requests('"(POST|PUT|PATCH) ')) == writes
        assert len(registry.requests('"(GET|HEAD) /v2/[^ ]*/blobs/')) == blobs
        assert (tmp_path / "state.yml").read_bytes() == before


@pytest.mark.engine
def test_a_shared_layer_is_uploaded_once_and_mounted_into_the_other_repository(
    sealed_small: Path, tmp_path: Path
) -> None:
    base = noise_layer("base", 5_000_000)
    digest = base.descriptor().digest
    with plain_registry(tmp_path / "registry") as registry:
        result = run_import(sealed_small, tmp_path / "state.yml", f"registry={registry.host}")
        assert registry.storage.holds("team/first", digest)
        assert registry.storage.holds("team/second", digest)
        assert len(registry.requests(f'"PUT /v2/[^ ]*digest=sha256:{digest.hex}')) == 1
        assert len(registry.requests(f'"POST /v2/[^ ]*mount=sha256:{digest.hex}')) == 1
        sent = sum(one.delivery.bytes_sent for one in result.outcomes if one.delivery)
        unique = {d: len(raw) for double in small_images() for d, raw in double.blobs.items()}
        documents = {d.digest for double in small_images() for d in double.image.documents}
        assert sent == sum(size for d, size in unique.items() if d not in documents)


@pytest.mark.engine
def test_tls_with_a_private_authority(sealed_tiny: Path, tmp_path: Path) -> None:
    with tls_registry(tmp_path / "registry") as registry:
        to = f"registry={registry.host}"
        registries = RegistryDirectory(ca_certs={registry.host: registry.ca_cert or Path()})
        assert actions(run_import(sealed_tiny, tmp_path / "state.yml", to, registries=registries)) == ["delivered"] * 2
        for double in tiny_images():
            assert_holds(registry, double, double.image.name.path)
        with pytest.raises(errors.TargetUnreachable):
            run_import(sealed_tiny, tmp_path / "other.yml", to, registries=RegistryDirectory())
        assert not (tmp_path / "other.yml").exists()


@pytest.mark.engine
def test_token_authentication(sealed_tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret:$x")
    with token_registry(tmp_path / "registry", {"pusher": "secret:$x"}) as registry:
        to = f"registry={registry.host}"
        login = Login.parse(f"{registry.host}=pusher:{tmp_path / 'password'}")
        registries = RegistryDirectory(logins=[login])
        assert actions(run_import(sealed_tiny, tmp_path / "state.yml", to, registries=registries)) == ["delivered"] * 2
        for double in tiny_images():
            assert_holds(registry, double, double.image.name.path)


@pytest.mark.engine
def test_a_refused_login_is_found_before_the_first_byte(sealed_tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("wrong")
    with token_registry(tmp_path / "registry", {"pusher": "right"}) as registry:
        login = Login.parse(f"{registry.host}=pusher:{tmp_path / 'password'}")
        with pytest.raises(errors.TargetLoginRefused) as raised:
            run_import(
                sealed_tiny, tmp_path / "state.yml", f"registry={registry.host}",
                registries=RegistryDirectory(logins=[login]),
            )  # fmt: skip
        assert "wrong" not in raised.value.message.replace("wrong user", "")
        assert registry.requests('"(POST|PUT|PATCH) /v2/') == []
        assert not (tmp_path / "state.yml").exists()


@pytest.mark.engine
def test_a_damaged_block_leaves_no_tag_and_no_whole_blob(
    sealed_small: Path, copy_of: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = copy_of(sealed_small)
    with (folder / "images.tar.0002").open("r+b") as file:
        file.seek(1000)
        file.write(b"\0" * 8)
    with plain_registry(tmp_path / "registry") as registry:
        result = run_import(folder, tmp_path / "state.yml", f"registry={registry.host}")
        assert result.exit_code == 63
        failed = {one.image_name for one in result.outcomes if one.error}
        assert 0 < len(failed) < 3
        for double in small_images():
            tagged = registry.storage.tagged(double.image.name.path, double.image.name.tag or "")
            assert tagged == (None if str(double.image.name) in failed else str(double.image.digest))
        # Repaired, the same command finishes, and what arrived before is not sent again.
        with (folder / "images.tar.0002").open("r+b") as file:
            file.write((sealed_small / "images.tar.0002").read_bytes())
        again = run_import(folder, tmp_path / "state.yml", f"registry={registry.host}")
        assert sorted(actions(again)) == sorted(["delivered"] * len(failed) + ["already-there"] * (3 - len(failed)))
        assert state_of(tmp_path / "state.yml").failures == {}


def test_manifests_follow_blobs_children_come_before_their_index_and_the_tag_is_last(
    sealed_small: Path, tmp_path: Path, scripted: ScriptedRegistry
) -> None:
    run_import(sealed_small, tmp_path / "state.yml", f"registry={scripted.host}")
    multi = small_images()[2].image
    puts = [one.path.rpartition("/")[2] for one in scripted.asked("PUT", "/v2/team/multi/manifests/")]
    assert puts[-1] == "3.0"
    assert sorted(puts[:-1]) == sorted(str(document.digest) for document in multi.documents[1:])
    last_blob = max(
        i for i, one in enumerate(scripted.requests) if one.method == "PUT" and "team/multi/blobs" in one.path
    )
    first_manifest = min(
        i for i, one in enumerate(scripted.requests) if one.method == "PUT" and "team/multi/manifests" in one.path
    )
    assert last_blob < first_manifest


@pytest.mark.parametrize("status", [202, 401, 403, 404, 405, 500])
def test_a_refused_mount_only_costs_an_upload(
    status: int, sealed_small: Path, tmp_path: Path, scripted: ScriptedRegistry
) -> None:
    def refuse_mounts(request: Request, serve: Serve) -> Reply:
        return Reply(status) if "mount=" in request.query and status != 202 else serve()

    def begin_instead(request: Request, serve: Serve) -> Reply:
        return Reply(202).having(location=f"/v2/{request.path}/x") if "mount=" in request.query else serve()

    change = begin_instead if status == 202 else refuse_mounts
    scripted.faults.append(Fault("POST", "/blobs/uploads/", change, times=None))
    result = run_import(sealed_small, tmp_path / "state.yml", f"registry={scripted.host}", jobs=1)
    assert actions(result) == ["delivered"] * 3


def test_a_blob_that_the_registry_only_claims_to_have_is_sent_again(
    tiny: Path, tmp_path: Path, scripted: ScriptedRegistry
) -> None:
    sizes = {str(digest): str(len(raw)) for double in tiny_images() for digest, raw in double.blobs.items()}

    def claim(request: Request, serve: Serve) -> Reply:
        return Reply(200).having(content_length=sizes[request.path.rpartition("/")[2]])

    scripted.faults.append(Fault("HEAD", "/blobs/", claim, times=None))
    result = run_import(tiny, tmp_path / "state.yml", f"registry={scripted.host}")
    assert actions(result) == ["delivered"] * 2
    for double in tiny_images():
        assert scripted.repositories[double.image.name.path].tags["1"] == str(double.image.digest)
    refused = [one for one in scripted.asked("PUT", "/manifests/1$") if one.status == 400]
    assert len(refused) == 2


def test_a_moved_tag_is_reported_with_both_digests(tiny: Path, tmp_path: Path, scripted: ScriptedRegistry) -> None:
    old = image("x.example/tiny/one:1", [noise_layer("older")])
    scripted.put(old)
    result = run_import(tiny, tmp_path / "state.yml", f"registry={scripted.host}")
    moved = {one.target: one.delivery.previous for one in result.outcomes if one.delivery}
    assert moved == {f"{scripted.host}/tiny/one:1": str(old.image.digest), f"{scripted.host}/tiny/two:1": None}


@pytest.mark.parametrize(("policy", "expected"), [("keep", "kept"), ("fail", "tag-conflict")])
def test_a_tag_of_another_image_is_left_where_the_policy_says_so(
    policy: str, expected: str, tiny: Path, tmp_path: Path, scripted: ScriptedRegistry
) -> None:
    old = image("x.example/tiny/one:1", [noise_layer("older")])
    scripted.put(old)
    result = run_import(tiny, tmp_path / "state.yml", f"registry={scripted.host}", policy=policy)
    assert sorted(actions(result)) == sorted([expected, "delivered"])
    assert result.exit_code == (0 if policy == "keep" else 3)
    assert scripted.repositories["tiny/one"].tags["1"] == str(old.image.digest)
    assert scripted.asked("(POST|PUT)", "/tiny/one/") == []
    delivered = state_of(tmp_path / "state.yml").deliveries[f"registry={scripted.host}"]
    assert list(delivered) == [f"{scripted.host}/tiny/two:1"]


@pytest.mark.parametrize("status", [400, 409, 412])
def test_an_immutable_tag_is_a_conflict_only_where_it_holds_another_image(
    status: int, tiny: Path, tmp_path: Path, scripted: ScriptedRegistry
) -> None:
    body = json.dumps({"errors": [{"code": "TAG_INVALID", "message": "The image tag already exists and is immutable"}]})
    scripted.put(image("x.example/tiny/one:1", [noise_layer("older")]))
    scripted.put(tiny_images()[1])
    scripted.faults.append(Fault("PUT", "/manifests/1$", answer(status, body.encode()), times=None))
    result = run_import(tiny, tmp_path / "state.yml", f"registry={scripted.host}")
    assert sorted(actions(result)) == ["already-there", "tag-conflict"]
    assert "immutable" in result.failures[0].hint


def test_an_index_whose_child_was_cleaned_away_is_pushed_again(
    sealed_small: Path, tmp_path: Path, scripted: ScriptedRegistry
) -> None:
    run_import(sealed_small, tmp_path / "state.yml", f"registry={scripted.host}")
    child = str(small_images()[2].image.documents[1].digest)
    del scripted.repositories["team/multi"].manifests[child]
    result = run_import(sealed_small, tmp_path / "state.yml", f"registry={scripted.host}")
    assert actions(result).count("delivered") == 1
    assert child in scripted.repositories["team/multi"].manifests


def test_a_repository_that_refuses_stops_no_other(tiny: Path, tmp_path: Path, scripted: ScriptedRegistry) -> None:
    scripted.faults.append(Fault("POST", "/tiny/two/", answer(404), times=None))
    result = run_import(tiny, tmp_path / "state.yml", f"registry={scripted.host}")
    assert sorted(actions(result)) == ["delivered", "push-failed"]
    assert result.exit_code == 3
    assert "project" in result.failures[0].hint
    failure = state_of(tmp_path / "state.yml").failures[f"registry={scripted.host}"][f"{scripted.host}/tiny/two:1"]
    assert failure.error == "push-failed"


def test_a_tag_that_does_not_stay_is_noticed(tiny: Path, tmp_path: Path, scripted: ScriptedRegistry) -> None:
    other = image("x.example/tiny/one:1", [noise_layer("older")])

    def serve_other(request: Request, serve: Serve) -> Reply:
        root = other.image.root
        return Reply(200, body=root.raw).having(content_type=root.media_type, docker_content_digest=str(root.digest))

    scripted.faults.append(Fault("GET", "/tiny/one/manifests/1$", serve_other, times=None))
    result = run_import(tiny, tmp_path / "state.yml", f"registry={scripted.host}")
    assert sorted(actions(result)) == ["delivered", "delivered-digest-differs"]


def test_a_registry_that_goes_away_is_not_waited_for_blob_by_blob(
    sealed_small: Path, tmp_path: Path, scripted: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transload.shared.registry.transport.Transport.wait_before_retry", lambda *_: None)
    scripted.faults.append(Fault("(HEAD|POST|PUT|PATCH)", "/blobs/", reset(), times=None))
    result = run_import(sealed_small, tmp_path / "state.yml", f"registry={scripted.host}", jobs=1)
    assert set(actions(result)) == {"target-unreachable"}
    assert result.exit_code == errors.TargetUnreachable.exit_code
    assert len({one.path for one in scripted.asked("HEAD", "/blobs/")}) == 1


def test_an_interrupted_upload_is_repeated(tiny: Path, tmp_path: Path, scripted: ScriptedRegistry) -> None:
    scripted.faults.append(Fault("PUT", "/blobs/uploads/", cut_after(0), times=1))
    assert actions(run_import(tiny, tmp_path / "state.yml", f"registry={scripted.host}")) == ["delivered"] * 2


def test_nobody_else_is_asked_for_anything(tiny: Path, tmp_path: Path, scripted: ScriptedRegistry) -> None:
    """The bundle is all that is needed: even what the target once had and lost comes from there."""
    with scripted_registry() as source:
        for double in tiny_images():
            source.put(double)
        run_import(tiny, tmp_path / "state.yml", f"registry={scripted.host}")
        scripted.repositories.clear()
        assert actions(run_import(tiny, tmp_path / "state.yml", f"registry={scripted.host}")) == ["delivered"] * 2
        assert source.requests == []
