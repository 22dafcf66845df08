"""The service as its users meet it: a process of its own, over HTTP."""

import hashlib
import itertools
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.service.runtime.clock import Patience
from app.setting_types import PREFIX
from tests.testkit.forkserver import fork_server
from tests.testkit.patience import DEADLINE_S, PATIENT, settings_of
from tests.testkit.postgres import migrated_database

STARTS_WITHIN_S = 200.0
"""Importing everything takes a second on an idle machine, and more than a minute on a busy one."""
STOPS_WITHIN_S = 60.0
"""The grace that running alterations have, 20 s by default, and what a busy machine adds."""

_POLL_S = 0.02

PLAIN_HTTP: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Of a client over plain HTTP: without it each reads the certificates of every authority."""

PRINCIPALS = ("alice", "bob", "mallory", "auditor", "root")


class Process(Protocol):
    """A process of the command: forked, or started with its own command line."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float) -> int: ...
    def send_signal(self, number: signal.Signals, /) -> None: ...
    def kill(self) -> None: ...


Launch = Callable[[Mapping[str, str], Path], Process]
"""Starts ``serve`` with an environment, and appends what it prints to a file."""


def forked(environ: Mapping[str, str], log: Path) -> Process:
    return fork_server().start(["serve"], environ, log)


def from_the_command_line(environ: Mapping[str, str], log: Path) -> Process:
    command = [sys.executable, "-m", "app.main", "serve"]
    with log.open("ab") as out:
        return subprocess.Popen(command, env=environ, stdout=out, stderr=subprocess.STDOUT)


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of these tests with these settings of the service and no others."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**others, **settings}


_ADDRESSES = itertools.count(2)


def new_address() -> str:
    """Return an address of this machine that no other test calls from."""
    number = next(_ADDRESSES)
    return f"127.9.{number // 250}.{number % 250}"


def transport_from(address: str | None) -> httpx.HTTPTransport:
    """Return the transport of a client that calls from that address if any, over plain HTTP."""
    return httpx.HTTPTransport(local_address=address, verify=PLAIN_HTTP)


def run_to_its_end(
    command: str, settings: Mapping[str, str], folder: Path
) -> "subprocess.CompletedProcess[str]":
    """Fork a command that ends by itself, such as a start that is refused."""
    out, errors = folder / "stdout", folder / "stderr"
    process = fork_server().start([command], environment(settings), out, errors)
    try:
        code = process.wait(STARTS_WITHIN_S)
    finally:
        process.kill()
    return subprocess.CompletedProcess(command, code, out.read_text(), errors.read_text())


@dataclass
class RunningService:
    """A serving process; ``api`` gives a client that calls as a principal.

    Bearer tokens are the principals' names. ``root`` is a super user in the service's settings.

    Attributes:
        environ: The settings of the next start, by variable. A start with port 0 sets the port, so
            that a restart has the same.
        url: The address of ``QUOTAS_PORT`` as the log reports it.
        tls_url: That of ``QUOTAS_TLS_PORT``, where there is one.
        operations_url: That of ``QUOTAS_OPERATIONS_PORT``, where there is one.
    """

    environ: dict[str, str]
    log_path: Path
    launch: Launch = forked
    url: str = ""
    tls_url: str = ""
    operations_url: str = ""
    process: Process | None = None
    clients: dict[tuple[str, str | None], httpx.Client] = field(default_factory=dict)

    def start(self) -> None:
        self.log_path.touch()
        size_before = self.log_path.stat().st_size
        self.process = self.launch(environment(self.environ), self.log_path)
        names = ("QUOTAS_PORT", "QUOTAS_TLS_PORT", "QUOTAS_OPERATIONS_PORT")
        ports = [name for name in names if name in self.environ]
        deadline = time.monotonic() + STARTS_WITHIN_S
        while len(urls := self._reported_urls(size_before)) < len(ports):
            assert self.process.poll() is None, self.log_path.read_text()
            assert time.monotonic() < deadline, self.log_path.read_text()
            time.sleep(_POLL_S)
        found = dict(zip(ports, urls, strict=False))
        self.url = found["QUOTAS_PORT"]
        self.tls_url = found.get("QUOTAS_TLS_PORT", self.url)
        self.operations_url = found.get("QUOTAS_OPERATIONS_PORT", self.url)
        for name, url in found.items():
            self.environ[name] = str(urlsplit(url).port)

    def _reported_urls(self, offset: int) -> list[str]:
        """Return the addresses in the log from there on, in lines of either format."""
        written = self.log_path.read_bytes()[offset:].decode(errors="replace")
        return re.findall(r"""\burl['"]?[=:] ?['"]?(https?://[^\s'"]+)['"]?.*\n""", written)

    def lines(self) -> list[dict[str, Any]]:
        """Return what was logged as JSON, in lines that are complete."""
        complete = self.log_path.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in complete.splitlines()]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        try:
            return self.process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOPS_WITHIN_S)
            raise AssertionError(self.log_path.read_text()) from None

    def send(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def wait_until_ended(self) -> None:
        if self.process is not None:
            self.process.wait(STARTS_WITHIN_S)

    def kill(self) -> None:
        """Kill it, as a power cut would; a restart has the same port and the same log."""
        self.send(signal.SIGKILL)
        self.wait_until_ended()

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def is_frozen(self) -> bool:
        """Tell whether it hangs, by its own doing or ours."""
        assert self.process is not None
        return bool(psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)

    def api(self, principal: str = "alice", host: str | None = None) -> httpx.Client:
        """Return a client of the principal, which calls from that address of this machine if any.

        Of a principal and address only the first denied attempt of a minute has a row at once.
        """
        if (principal, host) not in self.clients:
            self.clients[principal, host] = httpx.Client(
                base_url=self.url,
                headers={"Authorization": f"Bearer {principal}"},
                transport=transport_from(host),
                timeout=DEADLINE_S,
            )
        return self.clients[principal, host]

    def alter(self, *alterations: Mapping[str, Any], **options: Any) -> httpx.Response:
        body = {"alterations": alterations, **options}
        return self.api().post("/quotas/alterations", json=body)

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.stop()


def write_tokens(
    folder: Path,
    principals: Iterable[str] = PRINCIPALS,
    token_of: Callable[[str], str] = str,
    name: str = "tokens.json",
) -> Path:
    """Write a tokens file in which each principal's token is its name, by default."""
    path = folder / name
    entries = [
        {
            "principal": f"User:{user}",
            "token_sha256": hashlib.sha256(token_of(user).encode()).hexdigest(),
            "expires_at": "2999-01-01T00:00:00Z",
        }
        for user in principals
    ]
    path.write_text(json.dumps(entries))
    path.chmod(0o600)
    return path


def new_service(
    folder: Path,
    bootstrap_servers: str,
    database_url: str,
    launch: Launch = forked,
    patience: Patience = PATIENT,
    **settings: str,
) -> RunningService:
    """Return a service to be started; ``settings`` are further variables without their prefix."""
    environ = {
        "QUOTAS_HOST": "127.0.0.1",
        "QUOTAS_PORT": "0",
        "QUOTAS_MODE": "development",
        "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
        "QUOTAS_DATABASE_URL": database_url,
        "QUOTAS_TOKENS_FILE": str(write_tokens(folder)),
        "QUOTAS_AUDITORS": "User:auditor",
        "QUOTAS_SUPER_USERS": "User:root",
    }
    settings = {**settings_of(patience), **settings}
    environ |= {f"QUOTAS_{name.upper()}": value for name, value in settings.items()}
    return RunningService(environ, folder / "service.log", launch)


@contextmanager
def running_service(
    folder: Path, bootstrap_servers: str, database_url: str, **options: Any
) -> Iterator[RunningService]:
    """Serve until the block ends; ``options`` are those of ``new_service``."""
    service = new_service(folder, bootstrap_servers, database_url, **options)
    try:
        service.start()
        yield service
    finally:
        service.close()


def acl(
    principal: str,
    operation: str,
    permission: str = "ALLOW",
    host: str = "*",
    *,
    kind: ResourceType = ResourceType.BROKER,
    name: str = "kafka-cluster",
    prefixed: bool = False,
) -> AclBinding:
    """Return an ACL for ``User:<principal>``; confluent-kafka calls the type Cluster BROKER."""
    return AclBinding(
        kind,
        name,
        ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
        f"User:{principal}",
        host,
        AclOperation[operation],
        AclPermissionType[permission],
    )


@pytest.fixture(scope="session")
def service(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """One service for the run: alice may alter, bob describe, mallory nothing."""
    _, service_url = migrated_database(postgres, "service")
    folder = tmp_path_factory.mktemp("service")
    with running_service(folder, broker.bootstrap_servers, service_url) as running:
        yield running
