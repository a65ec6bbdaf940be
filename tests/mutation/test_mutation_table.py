"""The table of mutations fits the source as it is; `make mutate` runs it."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

RUNNER = runpy.run_path(str(Path(__file__).with_name("run_mutations.py")))
MUTATIONS = RUNNER["load_table"]()


def test_every_mutation_fits_the_source() -> None:
    assert [fault for mutation in MUTATIONS if (fault := mutation.fault())] == []


def test_every_mutation_changes_something() -> None:
    assert [mutation for mutation in MUTATIONS if mutation.old == mutation.new] == []


def test_no_mutation_is_listed_twice() -> None:
    assert max(Counter((mutation.file, mutation.old, mutation.new) for mutation in MUTATIONS).values()) == 1


def test_every_point_is_attacked_three_times() -> None:
    counts = Counter(mutation.point for mutation in MUTATIONS)
    assert {point: counts[point] for point in RUNNER["POINTS"] if counts[point] < 3} == {}
