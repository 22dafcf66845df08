"""Which service is called, and with which credential.

Options say it, then the environment, then a profile of
``~/.config/kafka-client-quotas/config.toml`` (below ``XDG_CONFIG_HOME`` where that is set)::

    profile = "test"                      # used where none is asked for

    [profiles.test]
    server = "https://quotas.test.example"
    token_file = "~/.config/kafka-client-quotas/test.token"

    endpoints = "1=http://broker-1:9404/metrics,2=http://broker-2:9404/metrics"  # of `top`

    [profiles.prod]
    cluster = "prod"                      # of a service that has several
    prometheus = "https://prometheus.example"  # of `top`, too
    prometheus_token_file = "prometheus.token"
    server = "https://quotas.example"
    user = "alice"                        # Basic: asks for the password
    password_file = "~/alice.password"    # or reads it
    cacert = "ca.pem"                     # beside this file
    cert = "alice.pem"
    key = "alice.key"
"""

import ssl
import sys
import tomllib
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.client.errors import UsageError, reason
from app.documents import CLUSTER_NAME
from app.domain.entities import visible

DEFAULT_SERVER: Final = "http://localhost:8080"
PREFIX: Final = "KAFKA_CLIENT_QUOTAS_"
CLUSTER_VARIABLE: Final = "QUOTAS_CLUSTER"

_TEXTS: Final = ("server", "cluster", "user", "endpoints", "prometheus")
_FILES: Final = (
    *("token_file", "password_file", "cacert", "cert", "key"),
    "prometheus_token_file",
)
MEMBERS: Final = (*_TEXTS, *_FILES)

_ALTERNATIVES: Final = (
    (("token_file",), ("user", "password_file")),
    (("endpoints",), ("prometheus", "prometheus_token_file")),
)
"""Groups of members that stand for each other: one from a nearer layer hides the others."""


_NEEDS: Final = (
    ("password_file", "user", "A password file needs a user: give --user."),
    ("key", "cert", "--key needs --cert."),
    ("prometheus_token_file", "prometheus", "--prometheus-token-file needs --prometheus."),
)
"""What is of no use without what."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Where to call, and as which user; every file as a path."""

    server: str = DEFAULT_SERVER
    cluster: str | None = None
    token_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None
    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    endpoints: str | None = None
    prometheus: str | None = None
    prometheus_token_file: Path | None = None


def config_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the file of profiles."""
    folder = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "kafka-client-quotas" / "config.toml"


def configuration(options: Namespace, environ: Mapping[str, str]) -> Configuration:
    """Put together what the options, the environment and the profile say; nearest first."""
    arguments = vars(options)
    near = {name: arguments[name] for name in MEMBERS if arguments.get(name) is not None}
    middle = {name: value for name in MEMBERS if (value := environ.get(_variable_of(name)))}
    asked = arguments.get("profile") or environ.get(f"{PREFIX}PROFILE")
    merged: dict[str, Any] = {}
    for layer in (near, middle, _profile(config_file(environ), asked)):
        if "token_file" in layer and "user" in layer:
            raise UsageError("Both a token file and a user are set: name one of them.")
        if "endpoints" in layer and "prometheus" in layer:
            raise UsageError("Both endpoints and prometheus are set: name one of them.")
        merged = _without_hidden(layer, merged) | merged
    _refuse_incomplete(merged)
    if "cluster" in merged:
        merged["cluster"] = cluster_name(merged["cluster"])
    for name in _FILES:
        if name in merged:
            merged[name] = Path(merged[name]).expanduser()
    return Configuration(**merged)


def _refuse_incomplete(merged: Mapping[str, Any]) -> None:
    for name, other, sentence in _NEEDS:
        if name in merged and other not in merged:
            raise UsageError(sentence)


def cluster_name(text: str) -> str:
    """Return the name of a cluster; refuse what would be another path."""
    if not CLUSTER_NAME.fullmatch(text):
        raise UsageError("--cluster is no name of a cluster: 1 to 63 of [a-z0-9-].")
    return text


def _variable_of(member: str) -> str:
    return CLUSTER_VARIABLE if member == "cluster" else PREFIX + member.upper()


def _without_hidden(layer: Mapping[str, Any], nearer: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what a nearer layer says in another way, such as by another credential."""
    hidden: set[str] = set()
    for groups in _ALTERNATIVES:
        for group in groups:
            if any(name in nearer for name in group):
                hidden |= {name for other in groups if other != group for name in other}
    return {name: value for name, value in layer.items() if name not in hidden}


def _profile(file: Path, asked: str | None) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if asked is not None:
            raise UsageError(f"--profile: there is no {file}.") from None
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {reason(error)}.") from error
    _check(file, content)
    name = asked or content.get("profile")
    profiles = content.get("profiles", {})
    if name is None:
        return {}
    if name not in profiles:
        names = ", ".join(profiles) or "none"
        raise UsageError(f"{file} has no profile of that name; it has {visible(names)}.")
    return {
        member: str(file.parent / Path(value).expanduser()) if member in _FILES else value
        for member, value in profiles[name].items()
    }


def _check(file: Path, content: Mapping[str, Any]) -> None:
    faults = [f"{name} is unknown here" for name in content if name not in ("profile", "profiles")]
    profiles = content.get("profiles", {})
    if not isinstance(profiles, dict) or not isinstance(content.get("profile", ""), str):
        raise UsageError(f"{file}: write profile = NAME, and each profile as [profiles.NAME].")
    for name, profile in profiles.items():
        if not isinstance(profile, dict):
            faults.append(f"profiles.{name} is not a table")
            continue
        for member, value in profile.items():
            if member not in MEMBERS:
                faults.append(f"profiles.{name}.{member} is unknown here")
            elif not isinstance(value, str):
                faults.append(f"profiles.{name}.{member} is not a text")
    if faults:
        raise UsageError(f"{file}: {visible('; '.join(faults))}.")


def authorization(configured: Configuration) -> bytes | None:
    """Return the ``Authorization`` header, or null where there is none; may ask for a password."""
    if configured.token_file is not None:
        return b"Bearer " + read_line(configured.token_file, "--token-file")
    if configured.user is not None:
        return b"Basic " + _basic(configured.user, configured.password_file)
    return None


def _basic(user: str, password_file: Path | None) -> bytes:
    from base64 import b64encode  # noqa: PLC0415 - few calls need it

    if ":" in user:
        raise UsageError("--user: a user name of Basic authentication holds no colon (RFC 7617).")
    if password_file is not None:
        password = read_line(password_file, "--password-file")
    else:
        password = _ask_password(user)
    return b64encode(user.encode() + b":" + password)


def _ask_password(user: str) -> bytes:
    import getpass  # noqa: PLC0415 - few calls need it
    import warnings  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            print("--user logs in; --names user=NAME names the user of a quota.", file=sys.stderr)
            return getpass.getpass(f"Password of {visible(user)}: ").encode()
        except (EOFError, getpass.GetPassWarning):
            message = "There is no terminal to ask for a password: give --password-file."
            raise UsageError(message) from None


def read_line(file: Path, option: str) -> bytes:
    """Return the one line of a file that holds a secret; a token is ASCII, without blanks."""
    try:
        text = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise UsageError(f"The file of {option} cannot be read: {reason(error)}.") from error
    is_token = option.endswith("-token-file")
    text = text.strip() if is_token else text
    if not text or not text.isprintable() or (is_token and not text.isascii()):
        raise UsageError(f"The file of {option} does not hold one line of text.")
    return text.encode()


def tls(configured: Configuration) -> ssl.SSLContext:
    """Return what ``https`` is checked with: the usual authorities, or those of ``--cacert``.

    For ``http`` it trusts nobody and is not used.
    """
    if not configured.server.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = ssl.create_default_context(cafile=configured.cacert)
        if configured.cert is not None:
            context.load_cert_chain(configured.cert, configured.key)
    except OSError as error:
        options = [f"--{name}" for name in ("cacert", "cert", "key") if getattr(configured, name)]
        named = ", ".join(options)
        raise UsageError(f"The files of {named} cannot be used: {reason(error)}.") from error
    return context
