"""Whole imports: order of bundles, several targets, names, selection, what the state remembers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from doubles.bundle_factory import BundleDraft, tiny_images
from doubles.image_factory import ImageDouble, image, noise_layer
from doubles.import_runs import actions, names, run_import, state_of
from transload.import_side.sinks.archive_sink import file_name
from transload.import_side.target_names import Rename
from transload.shared import errors

NAME = "registry.example/app:latest"


def version(number: int) -> ImageDouble:
    """The same tag, another image each time."""
    return image(NAME, [noise_layer(f"version-{number}")])


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[[int], Path]:
    """Bundle number n of one exporter, which has version n of the image; made once."""

    def make(number: int) -> Path:
        folder = tmp_path / f"bundle-{number}"
        return folder if folder.exists() else BundleDraft([version(number)], sequence=number).seal(folder)

    return make


class Site:
    """An isolated side that imports into a folder of archives."""

    def __init__(self, folder: Path) -> None:
        self.state, self.out = folder / "state.yml", folder / "out"
        self.warnings: list[str] = []

    def take(self, bundle: Path, **options: object) -> list[str]:
        self.warnings.clear()
        return actions(run_import(bundle, self.state, f"archive={self.out}", warnings=self.warnings, **options))  # type: ignore[arg-type]

    @property
    def holds(self) -> int | None:
        """Which version of the image lies there."""
        path = self.out / file_name(NAME)
        raw = path.read_bytes() if path.exists() else b""
        return next((n for n in range(1, 5) if version(n).image.digest.hex.encode() in raw), None)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


def test_the_same_bundle_twice_repeats_nothing(site: Site, bundle: Callable[[int], Path]) -> None:
    assert site.take(bundle(1)) == ["delivered"]
    state = site.state.read_bytes()
    assert site.take(bundle(1)) == ["already-there"]
    assert site.state.read_bytes() == state


def test_a_gap_is_named_and_the_bundle_taken(site: Site, bundle: Callable[[int], Path]) -> None:
    site.take(bundle(1))
    assert site.take(bundle(3)) == ["delivered"]
    assert len(site.warnings) == 1
    assert " 2 " in site.warnings[0]
    assert site.holds == 3


def test_an_older_bundle_is_refused_unless_allowed(site: Site, bundle: Callable[[int], Path]) -> None:
    site.take(bundle(2))
    with pytest.raises(errors.OlderSequence):
        site.take(bundle(1))
    assert site.holds == 2
    assert site.take(bundle(1), allow_older=True) == ["delivered"]
    assert site.holds == 1


def test_a_late_bundle_brings_what_only_it_holds_and_sets_no_name_back(site: Site, tmp_path: Path) -> None:
    only_here = image("registry.example/other:1", [noise_layer("only here")])
    late = BundleDraft([version(1), only_here], sequence=1).seal(tmp_path / "late")
    site.take(BundleDraft([version(2)], sequence=2).seal(tmp_path / "new"))
    assert "--allow-older --on-existing-tag keep" in site.warnings[0]
    assert sorted(site.take(late, allow_older=True, policy="keep")) == ["delivered", "kept"]
    assert site.holds == 2
    assert file_name("registry.example/other:1") in names(site.out)


def test_a_bundle_seen_before_never_sets_a_name_back(site: Site, bundle: Callable[[int], Path]) -> None:
    site.take(bundle(1))
    site.take(bundle(2))
    assert site.take(bundle(1)) == ["kept"]
    assert site.holds == 2
    assert site.take(bundle(1), allow_older=True) == ["delivered"]
    assert site.holds == 1


def test_a_part_of_a_bundle_is_partial_until_the_rest_arrives(sealed_tiny: Path, tmp_path: Path) -> None:
    warnings: list[str] = []

    def status(image: str) -> str:
        run_import(sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path / 'w' / '..' / 'out'}", images=[image],
                   renames=[Rename.parse("no/such=x")], warnings=warnings)  # fmt: skip
        state = state_of(tmp_path / "state.yml")
        assert list(state.deliveries) == [f"archive={tmp_path / 'out'}"]
        (exporter,) = state.exporters.values()
        return next(iter(exporter.bundles.values())).status

    (tmp_path / "w").mkdir()
    assert [status("one:1"), status("two:1")] == ["partial", "imported"]
    assert warnings[0].startswith("--rename no/such=x fits none")


def test_what_counts_is_that_the_target_still_has_it(site: Site, bundle: Callable[[int], Path]) -> None:
    site.take(bundle(1))
    (site.out / file_name(NAME)).unlink()
    assert site.take(bundle(1)) == ["delivered"]
    assert site.holds == 1


def test_several_targets_each_get_their_images(sealed_tiny: Path, tmp_path: Path) -> None:
    result = run_import(sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path / 'a'}", f"oci={tmp_path / 'b'}")
    assert actions(result) == ["delivered"] * 4
    assert len(names(tmp_path / "a")) == 2
    assert set(state_of(tmp_path / "state.yml").deliveries) == {f"archive={tmp_path / 'a'}", f"oci={tmp_path / 'b'}"}


def test_a_target_that_fails_stops_no_other(sealed_tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = run_import(sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path / 'file'}", f"oci={tmp_path / 'b'}")
    assert sorted(actions(result)) == ["already-exists"] * 2 + ["delivered"] * 2
    assert result.exit_code == 3
    assert len(state_of(tmp_path / "state.yml").failures[f"archive={tmp_path / 'file'}"]) == 2


def test_with_verify_first_a_target_that_fails_stops_all(sealed_tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(errors.AlreadyExists):
        run_import(
            sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path / 'file'}", f"oci={tmp_path / 'b'}",
            verify_first=True,
        )  # fmt: skip
    assert not (tmp_path / "state.yml").exists()
    assert not (tmp_path / "b" / "blobs").exists()


def test_a_single_target_that_fails_is_the_error_and_the_bundle_is_not_taken_for_seen(
    sealed_tiny: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(errors.AlreadyExists):
        run_import(sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path / 'file'}")
    assert not (tmp_path / "state.yml").exists()


@pytest.mark.parametrize("asked", ["registry.example/tiny/two:1", "tiny/two:1", "two:1"])
def test_one_image_is_chosen_by_its_name_or_its_end(asked: str, sealed_tiny: Path, tmp_path: Path) -> None:
    run_import(sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path / 'out'}", images=[asked])
    assert names(tmp_path / "out") == ["registry.example_tiny_two_1.tar"]


@pytest.mark.parametrize("asked", ["wo:1", "two", "two:2", "example/tiny/two:1"])
def test_what_matches_nothing_is_refused_with_what_there_is(asked: str, sealed_tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.NothingSelected) as raised:
        run_import(sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path / 'out'}", images=[asked])
    assert "registry.example/tiny/one:1" in raised.value.message
    assert names(tmp_path / "out") == []


def test_names_on_which_two_images_fall_are_refused_with_both(tmp_path: Path) -> None:
    doubles = [image("a.example/x/app:1", [noise_layer("a")]), image("b.example/x/app:1", [noise_layer("b")])]
    folder = BundleDraft(doubles).seal(tmp_path / "bundle")
    with pytest.raises(errors.TargetNamesCollide) as raised:
        run_import(folder, tmp_path / "state.yml", "registry=127.0.0.1:1/mirror")
    assert "a.example/x/app:1" in raised.value.message
    assert "b.example/x/app:1" in raised.value.message


def test_renamed_images_are_remembered_under_their_new_name(sealed_tiny: Path, tmp_path: Path) -> None:
    renames = [Rename.parse("registry.example/tiny=inner.example/apps")]
    run_import(sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path / 'out'}", renames=renames)
    delivered = state_of(tmp_path / "state.yml").deliveries[f"archive={tmp_path / 'out'}"]
    assert sorted(delivered) == ["inner.example/apps/one:1", "inner.example/apps/two:1"]


def test_a_dry_run_changes_nothing_anywhere(sealed_tiny: Path, tmp_path: Path) -> None:
    result = run_import(
        sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path / 'out'}", "registry=127.0.0.1:1", is_dry_run=True
    )
    assert len(result.outcomes) == 4
    assert result.exit_code == 0
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "state.yml").exists()


def test_the_destination_is_pinned_by_the_first_import_or_by_the_option(tmp_path: Path) -> None:
    site_a = BundleDraft(tiny_images(), destination="site-a").seal(tmp_path / "a")
    with pytest.raises(errors.WrongDestination):
        run_import(site_a, tmp_path / "state.yml", f"archive={tmp_path / 'out'}", destination="site-b")
    run_import(site_a, tmp_path / "state.yml", f"archive={tmp_path / 'out'}", destination="site-a")
    with pytest.raises(errors.InvalidConfiguration):
        run_import(site_a, tmp_path / "state.yml", f"archive={tmp_path / 'out'}", destination="site-b")


def test_documents_that_contradict_bundle_json_spoil_the_whole_bundle(tmp_path: Path) -> None:
    draft = BundleDraft(tiny_images())
    first, second = draft.manifest.images
    wrong = msgspec.structs.replace(second, platform="linux/arm64")
    draft.manifest = msgspec.structs.replace(draft.manifest, images=(first, wrong))
    folder = draft.seal(tmp_path / "bundle")
    with pytest.raises(errors.ArchiveInconsistent):
        run_import(folder, tmp_path / "state.yml", f"archive={tmp_path / 'out'}")
    assert names(tmp_path / "out") == []


def test_a_blob_that_was_wrong_when_it_was_sealed_spoils_its_image_alone(tmp_path: Path) -> None:
    draft = BundleDraft(tiny_images())
    own = tiny_images()[1].image.manifests[0].layers[1]
    place = next(blob for blob in draft.layout.blobs if blob.digest == own.digest)
    draft.archive[place.offset + 5] ^= 1  # before the block digests are made
    result = run_import(draft.seal(tmp_path / "bundle"), tmp_path / "state.yml", f"archive={tmp_path / 'out'}")
    assert actions(result) == ["delivered", "blob-damaged"]
    assert result.exit_code == 64
    assert names(tmp_path / "out") == ["registry.example_tiny_one_1.tar"]


def test_damage_outranks_other_failures_in_the_exit_code(
    sealed_small: Path, copy_of: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = copy_of(sealed_small)
    with (folder / "images.tar.0002").open("r+b") as file:
        file.write(b"damaged")
    (tmp_path / "file").write_text("in the way")
    result = run_import(folder, tmp_path / "state.yml", f"archive={tmp_path / 'file'}", f"oci={tmp_path / 'b'}")
    assert {"already-exists", "block-damaged", "delivered"} == set(actions(result))
    assert result.exit_code == 63


def test_one_target_twice_is_refused(sealed_tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidConfiguration):
        run_import(sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path}", f"archive={tmp_path}")
