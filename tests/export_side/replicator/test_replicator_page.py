"""docs/coming_from_ngc_replicator.md: every option has its row, and every option in it exists."""

from __future__ import annotations

import re
from pathlib import Path

from transload.export_side.replicator.cli import replicate

PAGE = (Path(__file__).parents[3] / "docs" / "coming_from_ngc_replicator.md").read_text()
OLD_OPTIONS = {
    "--api-key", "--project", "--output-path", "--min-version", "--py-version", "--image", "--strict-name-match",
    "--registry-url", "--registry-username", "--registry-password", "--dry-run", "--no-remove", "--exporter",
    "--no-exporter", "--singularity", "--no-singularity", "--templater", "--no-templater", "--external-images",
    "--progress-uri", "--service",
}  # fmt: skip
"""Of the old tool; --no-strict-name-match is its default."""


def our_options() -> set[str]:
    return {name for parameter in replicate.params for name in (*parameter.opts, *parameter.secondary_opts)}


def test_every_old_option_is_taken_and_has_a_row() -> None:
    assert our_options() >= OLD_OPTIONS | {"--no-strict-name-match"}
    table = PAGE.split("## Every option")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| (`--[^|]*) \|", table, re.MULTILINE)
    assert {name for cell in first_cells for name in re.findall(r"--[a-z-]+", cell)} == OLD_OPTIONS


def test_every_option_that_the_page_names_exists() -> None:
    lines = [line for line in PAGE.splitlines() if not re.match(r"docker |apptainer |For `--no-remove` in", line)]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(lines)))
    assert named - our_options() - {"--user"} == set()
