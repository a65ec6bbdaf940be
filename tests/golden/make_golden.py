"""Makes tests/golden/version-1 anew: `.venv/bin/python tests/golden/make_golden.py`, and only for a good reason.

If README.txt was reworded on purpose: nothing but README.txt, SHA256SUMS and its signature may differ afterwards.
Any other difference would be another format, or another bundle for the same images.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))

from doubles import golden  # noqa: E402
from doubles.scripted_registry import scripted_registry  # noqa: E402

if __name__ == "__main__":
    kept = HERE / "version-1"
    with scripted_registry() as source, tempfile.TemporaryDirectory() as temporary:
        if kept.exists():
            manifest = golden.fill_from_bundle(source, kept)
            oci_digest = golden.oci_digest(manifest)
        else:
            for double in golden.images():
                source.put(double)
            oci_digest = golden.images()[0].image.digest
        made = golden.export(source, Path(temporary) / "output", oci_digest)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(made, kept)
    (HERE / "allowed_signers").write_text(golden.SIGNER.trust_line())
