"""`--progress-uri`: what the run is doing, posted as JSON after every step, as the old tool did for DeepOps' web page.

The document is `{"percent": -1, "steps": [{"status", "header", "subHeader"}]}`; `percent` is -2 while the number of
steps is not known. A page that does not take it is told of once and never fails the run.
"""

from __future__ import annotations

import http.client
import json
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Literal

from transload.shared.console import warn
from transload.shared.errors import InvalidConfiguration

_TIMEOUT_SECONDS = 5.0
_MOST_FAILURES = 3
"""In a row; then nobody listens, and no more time is lost."""

Status = Literal["waiting", "running", "complete", "error"]


@dataclass(slots=True)
class ProgressPosts:
    """The steps of a run.

    Args:
        uri: Where they are posted; None for nowhere.

    Raises:
        InvalidConfiguration: No http or https URL.
    """

    uri: str | None
    is_length_known: bool = False
    _steps: dict[str, dict[str, str]] = field(default_factory=dict)
    _failures: int = 0

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.uri or "http://none")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidConfiguration("--progress-uri must be an http or https URL.")

    def add(self, key: str, header: str, detail: str = "") -> None:
        """Add a step that waits; nothing is posted yet."""
        self._steps[key] = {"status": "waiting", "header": header, "subHeader": detail}

    def update(self, key: str, status: Status, detail: str = "") -> None:
        """Change a step and post them all."""
        step = self._steps[key]
        step["status"] = status
        step["subHeader"] = detail or step["subHeader"]
        self.post()

    def document(self) -> dict[str, object]:
        """What is posted."""
        return {"percent": -1 if self.is_length_known else -2, "steps": list(self._steps.values())}

    def post(self) -> None:
        """Post all steps."""
        if self.uri is None or self._failures >= _MOST_FAILURES:
            return
        body = json.dumps(self.document()).encode()
        request = urllib.request.Request(  # noqa: S310 - the scheme was looked at
            self.uri, data=body, headers={"Content-Type": "application/json"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):  # noqa: S310
                self._failures = 0
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._failures += 1
            if self._failures == 1:
                warn(f"the progress could not be posted ({type(error).__name__}); the run goes on.")
