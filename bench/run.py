"""`make bench`: ours beside what people use instead, on the same images, in the same run.

    python bench/run.py [--storage FOLDER] [--work FOLDER] [--json FILE] [--only out|in] [--keep]

Without --storage the corpus is built once in bench/.corpus (corpus.sh, about 6 minutes). Everything talks over
loopback, so that the numbers are those of processors and disk, not of a network. The contenders run one after the
other; figures of one table can be compared, those of two runs hardly.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from contenders import Bench, back_in, out
from corpus import IMAGES, unique_blobs
from measure import Measured
from services import registry

HERE = Path(__file__).resolve().parent
MB = 1_000_000


def corpus_storage(chosen: Path | None) -> Path:
    """The storage folder of the corpus, built if there is none."""
    if chosen is not None:
        return chosen
    folder = HERE / ".corpus"
    if not (folder / "registry/complete").exists():
        subprocess.run([HERE / "corpus.sh", folder], check=True)
    return folder / "registry"


def show(title: str, contenders: Iterator[Measured]) -> list[Measured]:
    """Run contenders and print each when it is done; ratios are to the first one, syncs included."""
    print(f"\n{title}")
    headings = f"{'seconds':>9}{'+ sync':>8}{'ratio':>7}{'CPU s':>8}{'peak MB':>9}{'peak disk MB':>14}{'disk MB':>10}"
    print(f"{'':26}{headings}", flush=True)
    runs: list[Measured] = []
    for one in contenders:
        runs.append(one)
        whole, first = one.seconds + one.sync_seconds, runs[0].seconds + runs[0].sync_seconds
        print(
            f"{one.name:26}{one.seconds:9.2f}{one.sync_seconds:8.2f}{whole / first:7.2f}{one.cpu_seconds:8.2f}"
            f"{one.peak_memory_bytes / MB:9.0f}{one.peak_disk_bytes / MB:14.0f}{one.final_disk_bytes / MB:10.0f}",
            flush=True,
        )
    return runs


def main() -> int:
    """Run the contenders and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--storage", type=Path, help="storage folder of a docker-registry with the corpus")
    parser.add_argument("--work", type=Path, help="scratch folder; needs about 15 GB")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--only", choices=["out", "in"], help="one direction; `in` needs --work and an earlier `out`")
    parser.add_argument("--keep", action="store_true", help="leave the scratch folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that daemons and registries are stopped
    storage = corpus_storage(options.storage)
    work = options.work or Path(tempfile.mkdtemp(prefix="transload-bench-"))
    work.mkdir(parents=True, exist_ok=True)
    figures: dict[str, list[Measured]] = {}
    try:
        with registry(work / "source", storage) as host:
            blobs = unique_blobs(host)
            total = sum(blob.size_bytes for blob in blobs)
            corpus = f"{len(IMAGES)} images, {len(blobs)} blobs, {total:,} bytes"
            print(f"{corpus}; Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}", flush=True)
            bench = Bench(host, work)
            if options.only != "in":
                figures["out"] = show("Registry -> something to carry", out(bench))
            if options.only != "out":
                figures["in"] = show("What was carried -> target", back_in(bench))
    finally:
        if not options.keep and options.work is None:
            shutil.rmtree(work, ignore_errors=True)
    if options.json:
        plain = {title: [asdict(one) for one in runs] for title, runs in figures.items()}
        options.json.write_text(json.dumps({"bytes": total, "images": list(IMAGES), "runs": plain}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
