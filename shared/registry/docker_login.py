"""Logins that `docker login` stored: config.json, its credential store and its credential helpers (docker-py)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.errors import CredentialsUnusable, PathMissing, ReadFailed
from transload.shared.registry.settings import Credential

_HINT = "Log in again with `docker login`, or give the login as --login HOST=USER:FILE."


def docker_credential(host: str, environment: Mapping[str, str]) -> tuple[Credential | None, str]:
    """The login that docker has for a registry.

    Args:
        host: The registry, as it stands in references.
        environment: Usually `os.environ`; `DOCKER_CONFIG` and `HOME` matter.

    Returns:
        The login or None, and why docker's own store could not be asked (empty when it could).

    Raises:
        CredentialsUnusable: The file cannot be read or understood, or a helper failed.
    """
    file = _config_file(environment)
    try:
        raw = read_bounded(file, limits.MAX_STATE_BYTES)
    except PathMissing:
        return None, ""
    except ReadFailed as error:
        raise CredentialsUnusable(f"Docker's logins cannot be read: {error.message}", hint=_HINT) from error
    try:
        config = json.loads(raw)
    except ValueError as error:
        raise CredentialsUnusable(f"Docker's logins in {file} are not JSON.", hint=_HINT, path=str(file)) from error
    if not isinstance(config, dict):
        raise CredentialsUnusable(f"Docker's logins in {file} are not a JSON object.", hint=_HINT, path=str(file))
    if not any(config.get(key) for key in ("auths", "credsStore", "credHelpers")):
        return None, ""
    return _lookup(host, config, file)


def _lookup(host: str, config: dict[str, object], file: Path) -> tuple[Credential | None, str]:
    from docker import auth, errors  # noqa: PLC0415 - 150 ms that --help need not pay

    where = f"Docker's login for {host} in {file}"
    try:
        logins = auth.AuthConfig.load_config(None, _with_pairs_encoded(config))
        helper = logins.get_credential_store(host)
        problem = ""
        if helper and shutil.which(f"docker-credential-{helper}") is None:
            problem = f"{file} names the credential helper docker-credential-{helper}, which is not installed"
            if logins.cred_helpers.get(host):
                raise CredentialsUnusable(f"No login for {host}: {problem}.", hint=_HINT, host=host)
            del logins["credsStore"]
        found = logins.resolve_authconfig(host)
    except errors.DockerException as error:
        # Not quoted: a failed helper's output may hold a secret.
        raise CredentialsUnusable(f"{where} cannot be had: the credential helper failed.", hint=_HINT) from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise CredentialsUnusable(f"{where} cannot be understood.", hint=_HINT, host=host) from error
    # docker-py spells the fields in one way for config.json and in another for helpers.
    fields = {key.lower(): value for key, value in (found or {}).items()}
    token = fields.get("identitytoken") or ""
    username, password = fields.get("username") or "", fields.get("password") or ""
    if token:
        return Credential("", identity_token=token, source="docker login"), ""
    if not username:
        return None, problem
    return Credential(username, password, source="docker login"), ""


def _with_pairs_encoded(config: dict[str, object]) -> dict[str, object]:
    """Entries with `username` and `password` instead of `auth`, which Docker reads and docker-py does not."""
    import base64  # noqa: PLC0415

    auths = config.get("auths")
    if not isinstance(auths, dict):
        return config
    encoded = {}
    for key, entry in auths.items():
        changed = entry
        if isinstance(entry, dict) and not entry.get("auth"):
            changed = {name: value for name, value in entry.items() if name != "auth"}
            if entry.get("username") and entry.get("password"):
                pair = f"{entry['username']}:{entry['password']}".encode()
                changed["auth"] = base64.b64encode(pair).decode("ascii")
        if isinstance(changed, dict) and not changed.get("identitytoken"):
            changed = {name: value for name, value in changed.items() if name != "identitytoken"}
        encoded[key] = changed
    return {**config, "auths": encoded}


def _config_file(environment: Mapping[str, str]) -> Path:
    folder = environment.get("DOCKER_CONFIG")
    return (
        Path(folder) / "config.json"
        if folder
        else Path(environment.get("HOME") or "~").expanduser() / ".docker/config.json"
    )
