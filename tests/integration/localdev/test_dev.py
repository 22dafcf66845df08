import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from app.localdev.dev import run_dev
from app.localdev.kafka import LocalKafka
from app.localdev.local_directory import read_state
from app.localdev.postgres import LocalPostgres
from app.localdev.processes import descendants_of, free_ports, wait_until_ended
from app.startup_checks import load_settings
from tests.testkit.documents import PAGES, ROOT, blocks_of, script_of
from tests.testkit.forkserver import fork_server
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import STARTS_WITHIN_S, Process

DEADLINE_S = 30
COMMAND = [sys.executable, "-m", "app.main", "dev"]
LAST_LINE = "Ctrl-C stops everything"
LINES_OF_A_TERMINAL = 40


def bash(line: str) -> str:
    """Paste a line into a shell; return what it prints."""
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout


@dataclass
class RunningDev:
    process: Process
    directory: Path
    lines: list[str]
    errors: Path

    def curl_lines(self) -> list[str]:
        """Return a line for each route, and first those that are printed."""
        others = (self.directory / "curl.sh").read_text().splitlines()
        return [line for line in self.lines + others if line.startswith("curl ")]

    def address(self, name: str) -> str:
        (line,) = (line for line in self.lines if line.startswith(f"  {name} "))
        return line.removeprefix(f"  {name} ").split()[0]

    def describe_as_bob(self) -> dict[str, dict[str, float]]:
        line = next(line for line in self.curl_lines() if line.endswith("/quotas"))
        quotas = json.loads(bash(line))["quotas"]
        return {json.dumps(each["entity"], sort_keys=True): each["values"] for each in quotas}

    def stop(self, signals: int = 1) -> tuple[int, list[int]]:
        """Return the exit code and the processes that were below it."""
        below = descendants_of(self.process.pid)
        for _ in range(signals):
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(DEADLINE_S * 3)
        wait_until_ended(below, DEADLINE_S)
        return code, below


def environment(directory: Path, **more: str) -> dict[str, str]:
    """Return what a shell gives: the make that runs these tests did not start `dev`."""
    foreign = ("QUOTAS_", "MAKE")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**ours, "QUOTAS_LOCAL_DIR": str(directory), "QUOTAS_PORT": "0", **more}


def start(directory: Path, *options: str, fork: bool = True, **environ: str) -> RunningDev:
    log, env = directory.parent / f"{unique('dev')}.log", environment(directory, **environ)
    log.touch()
    errors = log.with_suffix(".errors")
    if fork:
        process: Process = fork_server().start(["dev", *options], env, log, errors)
    else:
        with log.open("ab") as out, errors.open("ab") as err:
            process = subprocess.Popen([*COMMAND, *options], env=env, stdout=out, stderr=err)
    wait_until(
        lambda: f"\n{LAST_LINE}" in log.read_text() or process.poll() is not None,
        "dev does not come up",
        STARTS_WITHIN_S,
    )
    assert process.poll() is None, f"dev has ended: {errors.read_text()}"
    return RunningDev(process, directory, log.read_text().splitlines(), errors)


@pytest.fixture
def refusal(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    """Runs dev in this process to its end, which must be a refusal, and returns what it says."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}

    def run(environ: Mapping[str, str], *, load: bool = False) -> str:
        assert run_dev(environ, load_settings, load=load) == 1
        captured = capfd.readouterr()
        assert captured.out == ""
        return captured.err

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def alive(pids: list[int]) -> list[int]:
    running = [process for process in psutil.process_iter() if process.pid in pids]
    return [process.pid for process in running if process.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dev")


@pytest.fixture(scope="module")
def dev(directory: Path) -> Iterator[RunningDev]:
    dev = start(directory, "--load", fork=False)
    yield dev
    if dev.process.poll() is None:
        dev.stop()


def test_what_is_printed_fits_one_screen_and_the_ten_examples_are_set(dev: RunningDev):
    assert len(dev.lines) <= LINES_OF_A_TERMINAL
    assert len([line for line in dev.lines if line.startswith("curl ")]) == 3
    assert dev.address("The page").startswith("http://127.0.0.1:")
    assert dev.address("Postgres").startswith("postgresql://quotas_service:")
    assert len(dev.describe_as_bob()) == 10
    assert "  alice/etl     writes   5.72 MiB/s   limit 4 MiB/s" in dev.lines


def test_every_curl_line_works_when_it_is_pasted(dev: RunningDev):
    statuses = {}
    for line in dev.curl_lines():
        statuses[line] = bash(f"{line} -o /dev/null -w '%{{http_code}}' || true")
    others = {line: status for line, status in statuses.items() if status != "200"}
    pipeline = {line: others.pop(line) for line in list(others) if "/analytics/" in line}
    pending = {line: others.pop(line) for line in list(others) if "/expiry" in line}
    assert list(others.values()) == ["403"]
    assert sorted(pipeline.values()) == ["404"] * 12
    assert list(pending.values()) == ["404"]  # what the line names was not for a time
    assert len(statuses) > 30


def test_the_same_directory_cannot_be_used_twice(
    dev: RunningDev, directory: Path, refusal: Callable[..., str]
):
    output = refusal(environment(directory))
    assert f"(process {dev.process.pid}) uses {directory}: stop it first" in output
    assert output.count("\n") == 1


def test_the_data_of_a_running_dev_is_not_forgotten(dev: RunningDev, directory: Path):
    command = [sys.executable, "-m", "app.localdev.local_directory"]
    done = subprocess.run(
        command, env=environment(directory), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "stop it first" in done.stderr


def test_a_taken_port_is_one_sentence_that_says_what_to_do(
    tmp_path: Path, refusal: Callable[..., str]
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        output = refusal(environment(tmp_path, QUOTAS_PORT=port))
    assert output.startswith(f"Port {port} of 127.0.0.1 cannot be used (Address already in use)")
    assert output.count("\n") == 1


def test_a_load_is_throttled_by_the_examples(dev: RunningDev):
    pair = 'kafka_server_quota_throttle_time{client_id="etl",resource="Produce",user="alice"}'

    def is_throttled() -> bool:
        lines = httpx.get(dev.address("Metrics"), timeout=DEADLINE_S).text.splitlines()
        return any(line.startswith(pair) and float(line.split()[-1]) > 0 for line in lines)

    wait_until(is_throttled, "nobody is throttled", DEADLINE_S * 3)


def test_top_shows_the_load_beside_its_limits(dev: RunningDev, directory: Path):
    (step,) = (line for line in dev.lines if line.startswith("  kafka-client-quotas top "))
    words = f". {directory / 'env'} && {step.split('#')[0]} --output json"

    def limited() -> set[tuple[str, str]]:
        rows = json.loads(bash(words))["rows"]
        return {(row["user"], row["key"]) for row in rows if row["rate"] and row["limit"]}

    wait_until(lambda: ("alice", "producer_byte_rate") in limited(), "alice's load has no rate")


def test_a_restart_knows_everything_and_neither_stopping_twice_nor_a_kill_leaves_a_process(
    dev: RunningDev, directory: Path
):
    alter = next(line for line in dev.curl_lines() if '"reason": "try it"' in line)
    alter = alter.replace('"validate_only": true, ', "").replace("5242880", "5242881")
    bash(alter)
    before = dev.describe_as_bob()
    token = shlex.split(alter)[3]
    node = read_state(directory / "kafka" / "node.json")

    code, below = dev.stop(signals=2)
    assert code == 0
    assert len(below) > 4
    assert alive(below) == []

    again = start(directory)
    try:
        after = again.describe_as_bob()
        assert after == before
        assert {"producer_byte_rate": 5242881} in after.values()
        assert read_state(directory / "kafka" / "node.json") == node
        audit = next(line for line in again.curl_lines() if "/audit?page_size" in line)
        rows = json.loads(bash(audit))["rows"]
        assert any(row["after"] == {"producer_byte_rate": 5242881} for row in rows)
        assert any(token in line for line in again.curl_lines())
    finally:
        below = descendants_of(again.process.pid)
        again.process.kill()
        again.process.wait(DEADLINE_S)
        wait_until_ended(below, DEADLINE_S)
    assert len(below) > 3
    assert alive(below) == []


def test_a_load_needs_a_broker_of_its_own(tmp_path: Path, refusal: Callable[..., str]):
    foreign = environment(tmp_path, QUOTAS_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:9")
    output = refusal(foreign, load=True)
    assert "--load needs a broker of its own: unset QUOTAS_KAFKA_BOOTSTRAP_SERVERS" in output


def test_servers_that_are_named_get_no_examples_and_the_port_for_operations_is_asked(
    kafka: LocalKafka, postgres: LocalPostgres, tmp_path: Path
):
    owner_url, service_url = postgres.create_database("named")
    (operations_port,) = free_ports(1)
    with RawQuotas(kafka.bootstrap_servers) as raw:
        before = raw.everything()
        dev = start(
            tmp_path,
            QUOTAS_DATABASE_URL=service_url,
            QUOTAS_MIGRATION_DATABASE_URL=owner_url,
            QUOTAS_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
            QUOTAS_OPERATIONS_PORT=str(operations_port),
        )
        try:
            assert any("no example ACLs and quotas" in line for line in dev.lines)
            assert len(descendants_of(dev.process.pid)) == 1
            page = dev.address("The page")
            assert httpx.get(f"{page}version", timeout=DEADLINE_S).status_code == 200
            assert httpx.get(f"{page}livez", timeout=DEADLINE_S).status_code == 404
        finally:
            assert dev.stop()[0] == 0
            assert dev.errors.read_text().endswith("Stopping ...\n")
        assert raw.everything() == before


# The README measures for a minute, twice, and each time runs the pipeline.
@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if [*blocks_of(page)]])
def test_what_a_page_shows_to_be_pasted_works(
    dev: RunningDev, directory: Path, tmp_path: Path, page: str
):
    (tmp_path / ".local").symlink_to(directory)
    for name in (".venv", "app", "deploy", "docs", "pyproject.toml", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    address = urlsplit(dev.address("The page")).netloc
    done = subprocess.run(
        ["bash", "-c", script_of(page, address)],
        cwd=tmp_path,
        env=environment(directory, PATH=f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
