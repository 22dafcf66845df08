"""The file of several clusters: YAML, read strictly; each fault names its key."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from app.documents import CLUSTER_NAME
from app.documents.yaml_files import mapping_of, read_yaml, refuse_others, text_of, texts_of
from app.domain.authorization import parse_super_users

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SASL: Final = ("sasl_mechanism", "sasl_username", "sasl_password_file")
_SERVERS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}", re.ASCII)


class ClustersFileError(ValueError):
    """The file cannot be used; the text has a line for each fault."""


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """A cluster of the file; paths are absolute, or relative to its folder.

    Attributes:
        sasl_password: As its file has it.
        callback: A mapping as in a file of callbacks, or the path of one; null: none.
        cluster_id: The only one that is accepted; null: whichever answers first.
    """

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_ca_file: Path | None = None
    ssl_cert_file: Path | None = None
    ssl_key_file: Path | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    super_users: frozenset[str] = frozenset()
    auditors: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False
    policy_file: Path | None = None
    callback: Mapping[str, Any] | Path | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClustersDocument:
    """The whole file: the clusters by name, in its order, and which one is the default."""

    default: str
    clusters: Mapping[str, ClusterEntry]


def read_clusters_file(path: Path) -> ClustersDocument:
    """Read the file, and the passwords that it names.

    Raises:
        ClustersFileError: With a line for each fault.
    """
    try:
        document = mapping_of(read_yaml(path), "the file")
        refuse_others(document, ("default", "clusters"), "the file")
        written = mapping_of(document.get("clusters"), "clusters")
    except ValueError as error:
        raise ClustersFileError(f"{path}: {str(error).rstrip('.')}.") from None
    faults: list[str] = []
    default = document.get("default")
    if default is None or not isinstance(default, str):
        faults.append("default: the name of a cluster is needed")
    elif default not in written:
        faults.append(f"default: {default!r} is none of the clusters")
    clusters = {}
    for name, members in written.items():
        reader = _EntryReader(f"clusters.{name}", path.parent)
        if not CLUSTER_NAME.fullmatch(name):
            faults.append(f"clusters: {name!r} is no name of a cluster: 1 to 63 of [a-z0-9-]")
        clusters[name] = reader.entry(members)
        faults += reader.faults
    if faults:
        raise ClustersFileError("\n".join(f"{path}: {fault}." for fault in faults))
    return ClustersDocument(str(default), {name: each for name, each in clusters.items() if each})


class _EntryReader:
    """Reads the members of one cluster; what is wrong is added to ``faults``."""

    def __init__(self, where: str, folder: Path) -> None:
        self._where = where
        self._folder = folder
        self.faults: list[str] = []

    def entry(self, written: object) -> ClusterEntry | None:
        """Return the cluster; null where something of it is wrong."""
        if not isinstance(written, dict):
            self.faults.append(f"{self._where} is to be a mapping with bootstrap_servers")
            return None
        found: dict[str, Any] = {}
        for name, value in written.items():
            read = _READERS.get(name)
            if read is None:
                takes = ", ".join(_READERS)
                self.faults.append(f"{self._where}.{name} is unknown; a cluster takes {takes}")
                continue
            try:
                found[_FIELDS.get(name) or name] = read(value, self._folder)
            except ValueError as error:
                self.faults.append(f"{self._where}.{name}: {error}")
        self.faults += (f"{self._where}.{fault}" for fault in _missing(written))
        return None if self.faults else ClusterEntry(**found)


def _missing(written: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is needed with something else and not there."""
    if "bootstrap_servers" not in written:
        yield "bootstrap_servers is needed"
    protocol = str(written.get("security_protocol", ""))
    for name in _SASL:
        if protocol.startswith("SASL_") and name not in written:
            yield f"{name} is needed with security_protocol {protocol}"
        if name in written and not protocol.startswith("SASL_"):
            yield f"{name} is of no use without a security_protocol of SASL"
    for name, needed in _NEEDED_WITH.items():
        if name in written and needed not in written:
            yield f"{needed} is needed with {name}"


_NEEDED_WITH: Final = {"ssl_key_file": "ssl_cert_file", "ssl_key_password_file": "ssl_cert_file"}


def _servers(value: object, _folder: Path) -> str:
    text = text_of(value, "it")
    for at, server in enumerate(text.split(","), 1):
        if not _SERVERS.fullmatch(server.strip()):
            raise ValueError(f"the bootstrap server at position {at} is not host:port")
    return text


def _one_of(allowed: Sequence[str]) -> Callable[[object, Path], str]:
    def read(value: object, _folder: Path) -> str:
        if value not in allowed:
            raise ValueError(f"it takes one of {', '.join(allowed)}")
        return str(value)

    return read


def _text(value: object, _folder: Path) -> str:
    return text_of(value, "it")


def _path(value: object, folder: Path) -> Path:
    return folder / text_of(value, "it")


def _secret(value: object, folder: Path) -> str:
    """Return what a file has, without the end of its line; faults do not repeat it."""
    path = _path(value, folder)
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "it is not UTF-8")
        raise ValueError(f"{path} cannot be read: {reason}") from None
    if not text:
        raise ValueError(f"{path} is empty")
    return text


def _principals(value: object, _folder: Path) -> frozenset[str]:
    found = texts_of(value, "it")
    if joined := [each for each in found if ";" in each]:
        raise ValueError(f"{joined[0]!r}: write each principal as an item of its own")
    return frozenset().union(*map(parse_super_users, found))


def _boolean(value: object, _folder: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it takes true or false")  # noqa: TRY004 - faults are values
    return value


def _callback(value: object, folder: Path) -> Mapping[str, Any] | Path:
    return _path(value, folder) if isinstance(value, str) else mapping_of(value, "it")


_READERS: Final[Mapping[str, Callable[[object, Path], object]]] = {
    "bootstrap_servers": _servers,
    "security_protocol": _one_of(_PROTOCOLS),
    "sasl_mechanism": _one_of(_MECHANISMS),
    "sasl_username": _text,
    "sasl_password_file": _secret,
    "ssl_ca_file": _path,
    "ssl_cert_file": _path,
    "ssl_key_file": _path,
    "ssl_key_password_file": _secret,
    "super_users": _principals,
    "auditors": _principals,
    "allow_everyone_if_no_acl_found": _boolean,
    "policy_file": _path,
    "callback": _callback,
    "cluster_id": _text,
}
"""By member, in the order in which they are listed."""

_FIELDS: Final = {
    "sasl_password_file": "sasl_password",
    "ssl_key_password_file": "ssl_key_password",
}
"""The field of a member that has another name."""
