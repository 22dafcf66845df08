"""The command `dev`: a broker, a database and the service on this machine, until Ctrl-C."""

import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from app.localdev.clusters import NAMES, folder_of, write_clusters_file
from app.localdev.examples import (
    ALICE,
    AUDITOR,
    BOB,
    PRINCIPALS,
    Curl,
    a_plan_id,
    all_lines,
    an_alteration_id,
    first_lines,
    set_example_acls,
    set_example_quotas,
)
from app.localdev.kafka import LocalKafka
from app.localdev.local_directory import LocalDevError, held, local_directory, write_private
from app.localdev.postgres import LocalPostgres
from app.localdev.processes import ManagedProcess, ParentMake, free_ports
from app.localdev.service import (
    LocalService,
    migrate,
    refuse_a_taken_port,
    tokens_file,
    write_tokens,
)
from app.localdev.traffic import prepare_traffic, traffic_beside_limits

SUPER_USERS = "User:ANONYMOUS;User:admin"

_ACCOUNT_AT_BROKERS = ("QUOTAS_KAFKA_SECURITY_", "QUOTAS_KAFKA_SASL_", "QUOTAS_KAFKA_SSL_")
"""Of no use with an embedded broker, and ignored there."""

_OF_ONE_CLUSTER = ("QUOTAS_KAFKA_", "QUOTAS_BASIC_", "QUOTAS_CLUSTER_ID")
"""Settings that the file of several clusters takes the place of."""

_OF_THE_COMMAND = "QUOTAS_CLUSTER"
"""Names a cluster for `kafka-client-quotas`; a service refuses it as a misspelt setting."""

_NOTHING_LISTENS = {
    "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "QUOTAS_DATABASE_URL": "postgresql://127.0.0.1:1/quotas",
}
"""Stands for the servers that are not started yet while the other settings are checked."""

_SASL_USERS = {name: f"{name}-secret" for name in ("admin", "alice", "bob", "mallory")}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_S = 0.5
_LOAD_STOP_DEADLINE_S = 10.0


class _Stopped(BaseException):
    """A signal asked us to stop."""


@dataclass
class _Dev:
    """What runs, and the environment that the service will get."""

    directory: Path
    environ: dict[str, str]
    stack: ExitStack
    make: ParentMake
    begun: float = field(default_factory=time.monotonic)
    kafka: LocalKafka | None = None
    others: dict[str, LocalKafka] = field(default_factory=dict)
    postgres: LocalPostgres | None = None
    load: list[str] | None = None

    def say(self, line: str) -> None:
        print(f"{time.monotonic() - self.begun:6.1f} s  {line}", file=sys.stderr, flush=True)


Check = Callable[[Mapping[str, str]], object]
"""Raises an error with every fault of the service's settings."""


def run_dev(
    environ: Mapping[str, str], check: Check, *, load: bool = False, clusters: int = 1
) -> int:
    """Run everything until SIGINT, SIGTERM or SIGHUP; return the exit code.

    State is stored in `.local` of the current directory, or in `QUOTAS_LOCAL_DIR`. A broker of
    `QUOTAS_KAFKA_BOOTSTRAP_SERVERS` or a database of `QUOTAS_DATABASE_URL` is used instead of an
    embedded one; a broker that is not ours gets no example ACLs and quotas.

    Args:
        environ: Of this process.
        check: Called before anything is started; its error ends this call.
        load: Run producers and consumers over and under their limits as well.
        clusters: How many brokers to start, each a cluster of its own.

    Returns:
        0 after a signal; 1 where something could not start or ended by itself (one sentence on
        the standard error says what to do).
    """
    try:
        _stop_at_signals()
        with ExitStack() as stack:
            try:
                _run(environ, check, stack, load=load, clusters=clusters)
            except _Stopped:
                print("Stopping ...", file=sys.stderr, flush=True)
                raise
            finally:
                _hold_signals()
    except _Stopped:
        return 0
    except (LocalDevError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
    return 1


def _run(
    environ: Mapping[str, str], check: Check, stack: ExitStack, *, load: bool, clusters: int
) -> None:
    if clusters > 1 and environ.get("QUOTAS_KAFKA_BOOTSTRAP_SERVERS"):
        raise LocalDevError(
            "Several clusters need brokers of their own: unset QUOTAS_KAFKA_BOOTSTRAP_SERVERS, or "
            "leave CLUSTERS out."
        )
    if load and environ.get("QUOTAS_KAFKA_BOOTSTRAP_SERVERS"):
        raise LocalDevError(
            "--load needs a broker of its own: unset QUOTAS_KAFKA_BOOTSTRAP_SERVERS, or leave "
            "--load out."
        )
    if environ.get("QUOTAS_TLS_CERT_FILE") and not environ.get("QUOTAS_TLS_PORT"):
        raise LocalDevError("QUOTAS_TLS_CERT_FILE needs QUOTAS_TLS_PORT here: set it, too.")
    directory = local_directory(environ)
    stack.enter_context(held(directory))
    ours = _service_environment(environ, directory)
    dev = _Dev(directory, ours, stack, ParentMake(environ))
    tokens = write_tokens(directory, PRINCIPALS)
    missing = {name: url for name, url in _NOTHING_LISTENS.items() if not _is_set(dev, name)}
    check({**dev.environ, **missing})
    service = _service(dev)
    _start_kafka(dev)
    _start_others(dev, clusters)
    _start_postgres(dev)
    dev.say("Migrating the database ...")
    migrate(dev.environ)
    _start_service(dev, service, tokens[ALICE])
    if load and dev.kafka is not None:
        _start_load(dev, dev.kafka, service, tokens[BOB])
    _write_env(dev, service, tokens)
    _write_curl_lines(dev, service, tokens)
    dev.say("Ready.")
    print(_screen(dev, service, tokens), flush=True)
    _watch(dev, service)


def _service_environment(environ: Mapping[str, str], directory: Path) -> dict[str, str]:
    embedded_broker = not environ.get("QUOTAS_KAFKA_BOOTSTRAP_SERVERS")
    ours = {
        "QUOTAS_MODE": "development",
        "QUOTAS_AUDITORS": AUDITOR,
        "QUOTAS_HOST": "127.0.0.1",
        "QUOTAS_PORT": "8080",
        **({"QUOTAS_SUPER_USERS": SUPER_USERS} if embedded_broker else {}),
    }
    ignored = _ACCOUNT_AT_BROKERS if embedded_broker else ()
    theirs = {
        name: value
        for name, value in environ.items()
        if not name.startswith(ignored) and name != _OF_THE_COMMAND
    }
    ours = {name: environ.get(name) or value for name, value in ours.items()}
    return {**theirs, **ours, "QUOTAS_TOKENS_FILE": str(tokens_file(directory))}


def _service(dev: _Dev) -> LocalService:
    host = dev.environ["QUOTAS_HOST"]
    number = int(dev.environ["QUOTAS_PORT"]) or free_ports(1)[0]
    refuse_a_taken_port(host, number)
    dev.environ["QUOTAS_PORT"] = str(number)
    return LocalService(host, number, dev.directory / "service.log")


def _is_set(dev: _Dev, name: str) -> bool:
    """Tell whether a server is named, by a variable or by the file of a secret."""
    return bool(dev.environ.get(name) or dev.environ.get(f"{name}_FILE"))


def _start_postgres(dev: _Dev) -> None:
    if _is_set(dev, "QUOTAS_DATABASE_URL"):
        return
    dev.say("Starting Postgres ...")
    dev.postgres = LocalPostgres(dev.directory / "postgres")
    dev.stack.callback(dev.postgres.stop)
    dev.postgres.start()
    dev.environ["QUOTAS_DATABASE_URL"] = dev.postgres.service_url
    dev.environ["QUOTAS_MIGRATION_DATABASE_URL"] = dev.postgres.owner_url


def _start_kafka(dev: _Dev) -> None:
    if dev.environ.get("QUOTAS_KAFKA_BOOTSTRAP_SERVERS"):
        return
    dev.say("Starting the broker ...")
    dev.kafka = _broker(dev, NAMES[0])
    dev.environ["QUOTAS_KAFKA_BOOTSTRAP_SERVERS"] = dev.kafka.bootstrap_servers
    dev.environ |= {
        "QUOTAS_BASIC_SASL_MECHANISM": "SCRAM-SHA-256",
        "QUOTAS_BASIC_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "QUOTAS_BASIC_BOOTSTRAP_SERVERS": dev.kafka.sasl_bootstrap_servers,
    }


def _broker(dev: _Dev, name: str) -> LocalKafka:
    broker = LocalKafka(
        dev.directory / folder_of(name),
        super_users=SUPER_USERS,
        plain_users=_SASL_USERS,
        scram_users=_SASL_USERS,
        metrics=True,
    )
    dev.stack.callback(broker.stop)
    broker.start()
    return broker


def _start_others(dev: _Dev, clusters: int) -> None:
    """Start the brokers of further clusters, and let a file name all of them."""
    if clusters == 1 or dev.kafka is None:
        return
    for name in NAMES[1:clusters]:
        dev.say(f"Starting the broker of {name} ...")
        dev.others[name] = _broker(dev, name)
    for variable in [each for each in dev.environ if each.startswith(_OF_ONE_CLUSTER)]:
        del dev.environ[variable]
    brokers = {NAMES[0]: dev.kafka, **dev.others}
    write_clusters_file(dev.directory / "clusters.yaml", brokers, dev.environ)


def _start_service(dev: _Dev, service: LocalService, token: str) -> None:
    """Start the service; fill a broker of our own at its first start."""
    done = dev.directory / "examples-are-set"
    empty = dev.kafka if dev.kafka is not None and not done.exists() else None
    if empty is not None:
        set_example_acls(empty.bootstrap_servers)
    unfilled = [name for name in dev.others if not _filled(dev, name).exists()]
    for name in unfilled:
        set_example_acls(dev.others[name].bootstrap_servers)
    dev.say("Starting the service ...")
    for name in ("QUOTAS_MIGRATION_DATABASE_URL", "QUOTAS_MIGRATION_DATABASE_URL_FILE"):
        dev.environ.pop(name, None)
    dev.stack.callback(service.stop)
    service.start(dev.environ)
    if empty is not None:
        set_example_quotas(service, token)
        done.touch()
    for name in unfilled:
        set_example_quotas(service, token, name)
        _filled(dev, name).touch()


def _filled(dev: _Dev, name: str) -> Path:
    return dev.directory / f"examples-are-set-{name}"


def _start_load(dev: _Dev, kafka: LocalKafka, service: LocalService, token: str) -> None:
    dev.say("Starting producers and consumers ...")
    prepare_traffic(kafka.bootstrap_servers)
    child = ManagedProcess("The load", dev.directory / "load.log")
    dev.stack.callback(child.stop, _LOAD_STOP_DEADLINE_S)
    command = [sys.executable, "-m", "app.localdev.traffic", kafka.sasl_bootstrap_servers]
    child.spawn(command, directory=Path.cwd(), environ=dev.environ)
    dev.load = traffic_beside_limits(service, token)


def _write_env(dev: _Dev, service: LocalService, tokens: Mapping[str, str]) -> None:
    """Write what the examples of the documents need, to be read by ``. .local/env``."""
    token_file = dev.directory / "tokens" / ALICE.removeprefix("User:")
    variables = {
        f"{name.removeprefix('User:')}": f"Authorization: Bearer {token}"
        for name, token in tokens.items()
    }
    variables |= {
        "KAFKA_CLIENT_QUOTAS_SERVER": service.url,
        "KAFKA_CLIENT_QUOTAS_TOKEN_FILE": str(token_file),
        **_metrics(dev),
        "QUOTAS_PIPELINE_DATABASE_URL": dev.environ.get("QUOTAS_DATABASE_URL", ""),
    }
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    path = f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH\n"
    write_private(dev.directory / "env", f"{''.join(lines)}{path}{_FIELD}\n")


def _metrics(dev: _Dev) -> dict[str, str]:
    """Return where the broker's metrics are, for collect and for top."""
    if dev.kafka is None:
        return {"metrics": ""}
    url = dev.kafka.metrics_url
    if dev.others:  # top would hold one cluster's rates beside another one's limits
        return {"metrics": url}
    return {"metrics": url, "KAFKA_CLIENT_QUOTAS_ENDPOINTS": f"1={url}"}


_FIELD = """field() { sed -n 's/.*"'"$1"'": *"\\([^"]*\\)".*/\\1/p'; }"""
"""Takes the text of a member out of an answer, which is one line of JSON."""


def _write_curl_lines(dev: _Dev, service: LocalService, tokens: Mapping[str, str]) -> None:
    """Write a line for each route, to be read and pasted."""
    alteration, plan = an_alteration_id(service, tokens[ALICE]), a_plan_id(service, tokens[BOB])
    text = all_lines(Curl(service.url, tokens), alteration, plan)
    if dev.kafka is not None and not dev.others:
        line = f"curl -sS -u alice:{_SASL_USERS['alice']} {service.url}/quotas"
        text += f"\n# With alice's password of the broker, which decides itself\n{line}\n"
    write_private(dev.directory / "curl.sh", text)


def _screen(dev: _Dev, service: LocalService, tokens: Mapping[str, str]) -> str:
    """Return what to read once everything runs: addresses, first lines to paste, what is next."""
    addresses = {
        "The page": f"{service.url}/   (sign in with alice's token: {tokens[ALICE]})",
        "Its log": str(dev.directory / "service.log"),
    }
    if dev.postgres is not None:
        addresses["Postgres"] = f"{dev.postgres.service_url}   (for quota-pipeline --pg)"
    if dev.kafka is not None:
        addresses["Kafka"] = (
            f"{dev.kafka.bootstrap_servers} (super user), "
            f"{dev.kafka.sasl_bootstrap_servers} (SASL PLAIN: alice/alice-secret, ...)"
        )
        addresses["Metrics"] = f"{dev.kafka.metrics_url}   (for top and collect)"
    else:
        addresses["Kafka"] = "not ours: no example ACLs and quotas were set there"
    steps = {
        f". {dev.directory / 'env'}": "tokens and addresses of README.md; the PATH of the commands",
        "kafka-client-quotas --describe": "the same from the command; --help lists the others",
        f"less {dev.directory / 'curl.sh'}": "a curl line for each route",
    }
    for name, broker in dev.others.items():
        addresses[f"Cluster {name}"] = f"{broker.bootstrap_servers} (super user)"
        diff = f"kafka-client-quotas diff --cluster {NAMES[0]} {name}"
        steps[diff] = "what is different there; `clusters` lists them"
    if dev.load is not None:
        steps["kafka-client-quotas top"] = "the load beside its limits"
    return "\n".join(
        [
            "",
            *_columns(addresses, "  "),
            *(["", "The load:", *dev.load] if dev.load is not None else []),
            "",
            "All quotas; what applies to a client; an alteration, checked only:",
            *first_lines(Curl(service.url, tokens)),
            "",
            "Next, in another shell:",
            *_columns(steps, "  # "),
            "",
            "Ctrl-C stops everything; the data stays until `make clean-local`.",
        ]
    )


def _columns(rows: Mapping[str, str], between: str) -> list[str]:
    width = max(map(len, rows))
    return [f"  {first:{width}}{between}{second}" for first, second in rows.items()]


def _watch(dev: _Dev, service: LocalService) -> NoReturn:
    while True:
        if dev.make.wants_us_to_stop():
            raise _Stopped
        if not service.is_running():
            raise LocalDevError(f"The service ended; its log ends:\n{service.last_lines()}")
        for server in (dev.kafka, *dev.others.values(), dev.postgres):
            if server is not None and not server.is_running():
                raise LocalDevError(f"{server.log_path} says why this server ended.")
        time.sleep(_LOOK_S)


def _stop_at_signals() -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        _hold_signals()
        raise _Stopped

    for number in _SIGNALS:
        # A shell lets its background jobs ignore SIGINT; nohup ignores SIGHUP for good.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def _hold_signals() -> None:
    """Let nothing disturb the stopping: parents pass a signal on, people press Ctrl-C again."""
    for number in _SIGNALS:
        signal.signal(number, lambda _number, _frame: None)
