"""Everything that is measured, running: a broker, Postgres, the service, the no-op server."""

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.localdev.examples import ALICE, set_example_acls
from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.localdev.processes import HOST, ManagedProcess, free_ports
from app.localdev.service import LocalService, migrate, tokens_file, write_tokens


@dataclass
class Progress:
    """Prints lines with the seconds since the start on standard error."""

    begun: float = field(default_factory=time.monotonic)

    def say(self, line: str) -> None:
        """Print a line."""
        print(f"{time.monotonic() - self.begun:6.1f} s  {line}", file=sys.stderr, flush=True)


BROKER_HEAP = "1g"
_DRIFT_INTERVAL_S = "3600"
"""What other clients change here is not to be recorded in the middle of a measurement."""


@dataclass(frozen=True)
class Stack:
    """Where everything listens, and the token of a caller who may alter.

    The service can be started anew with another environment.
    """

    bootstrap_servers: str
    service_port: int
    noop_port: int
    token: str
    database_url: str
    service: LocalService
    environ: Mapping[str, str]


@contextmanager
def running_stack(progress: Progress) -> Iterator[Stack]:
    """Start everything, new and empty; stop it when the block ends, and forget its folder."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        progress.say("starting Postgres")
        postgres = stack.enter_context(LocalPostgres(folder / "postgres"))
        progress.say("starting the broker")
        kafka = stack.enter_context(LocalKafka(folder / "kafka", heap=BROKER_HEAP, optimized=True))
        set_example_acls(kafka.bootstrap_servers)
        progress.say("starting the service and the no-op server")
        service_port, noop_port = free_ports(2)
        tokens = write_tokens(folder, [ALICE])
        environ = _environment(folder, kafka, postgres) | {"QUOTAS_PORT": str(service_port)}
        migrate(environ)
        service = LocalService(HOST, service_port, folder / "service.log")
        stack.callback(service.stop)
        service.start(environ)
        stack.enter_context(_noop(noop_port, folder))
        yield Stack(
            kafka.bootstrap_servers,
            service_port,
            noop_port,
            tokens[ALICE],
            postgres.service_url,
            service,
            environ,
        )


def _environment(folder: Path, kafka: LocalKafka, postgres: LocalPostgres) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("QUOTAS_")},
        "QUOTAS_MODE": "development",
        "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "QUOTAS_DATABASE_URL": postgres.service_url,
        "QUOTAS_MIGRATION_DATABASE_URL": postgres.owner_url,
        "QUOTAS_TOKENS_FILE": str(tokens_file(folder)),
        "QUOTAS_DRIFT_INTERVAL_S": _DRIFT_INTERVAL_S,
    }


@contextmanager
def _noop(port: int, folder: Path) -> Iterator[None]:
    child = ManagedProcess("The no-op server", folder / "noop.log")
    command = [sys.executable, "-m", "benchmarks.noop", str(port), str(tokens_file(folder))]

    def launch() -> Callable[[], bool]:
        child.spawn(command, directory=Path.cwd(), environ=os.environ)
        return listens

    def listens() -> bool:
        with suppress(OSError), socket.create_connection((HOST, port)):
            return True
        return False

    try:
        child.bring_up(launch)
        yield
    finally:
        child.stop()
