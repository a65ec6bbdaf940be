"""Bundles made once for all tests of this folder; each test that changes one gets its own copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from doubles.bundle_factory import BundleDraft, small_images, tiny_images


@pytest.fixture(scope="session")
def sealed_small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three images in three chunks of one block each; never changed."""
    return BundleDraft(small_images()).seal(tmp_path_factory.mktemp("sealed") / "small")


@pytest.fixture(scope="session")
def sealed_tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two images in one block; never changed."""
    return BundleDraft(tiny_images()).seal(tmp_path_factory.mktemp("sealed") / "tiny")


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """Makes a copy that a test may break."""

    def copy(folder: Path) -> Path:
        return Path(shutil.copytree(folder, tmp_path / f"copy-of-{folder.name}"))

    return copy
