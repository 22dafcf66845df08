"""The parent of workers, as a process: who is started, who again, and what is left at the end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.supervisor.supervisor import FIRST_PAUSE_S, LIVED_LONG_S, LONGEST_PAUSE_S, Place

DEADLINE_S = 30.0


class Family:
    """A parent and its workers."""

    def __init__(self, folder: Path, workers: int, behaviour: str) -> None:
        self.folder = folder
        self.parent = subprocess.Popen(
            [sys.executable, "-m", "tests.testkit.supervised", str(workers), behaviour, folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def pid(self, worker: int) -> int:
        return int((self.folder / f"{worker}.pid").read_text())

    def wait_for_workers(self, *workers: int) -> None:
        until(lambda: all(self.has(f"{worker}.pid") for worker in workers))

    def end(self) -> tuple[int, str, str]:
        out, err = self.parent.communicate(timeout=DEADLINE_S)
        return self.parent.returncode, out, err


Families = Callable[..., Family]


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Families]:
    made: list[Family] = []

    def begin(workers: int, behaviour: str = "serve") -> Family:
        made.append(Family(tmp_path, workers, behaviour))
        return made[-1]

    yield begin
    for each in made:
        each.parent.kill()
        each.end()
        for path in tmp_path.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_and_the_end_is_clean(family: Families, number: signal.Signals):
    parent = family(3)
    parent.wait_for_workers(1, 2, 3)
    pids = [parent.pid(worker) for worker in (1, 2, 3)]
    assert len({*pids, parent.parent.pid}) == 4
    parent.parent.send_signal(number)
    assert parent.end()[0] == 0
    assert not any(map(is_alive, pids))
    assert parent.has("stopping")


def test_a_worker_that_dies_is_followed_by_another_and_the_log_says_so(family: Families):
    parent = family(2)
    parent.wait_for_workers(1, 2)
    first, other = parent.pid(1), parent.pid(2)
    os.kill(first, signal.SIGKILL)
    until(lambda: parent.pid(1) != first)
    assert (parent.has("1.ended"), parent.has("2.ended")) == (True, False)
    assert parent.pid(2) == other
    parent.parent.terminate()
    code, out, _ = parent.end()
    assert code == 0
    assert f"worker 1 (process {first}) ended by SIGKILL; the next one starts in 0.1 s" in out


def test_a_worker_that_cannot_start_ends_the_service_with_its_error_and_code(family: Families):
    code, out, err = family(3, "fail").end()
    assert code == 2
    assert err == "this cannot work\n"
    assert "worker 1" in out
    assert "worker 2" not in out


def test_a_fault_of_a_worker_at_its_start_is_shown(family: Families):
    code, _, err = family(2, "crash").end()
    assert code == 1
    assert err.rstrip().endswith("RuntimeError: this is a bug")


def test_a_later_worker_that_never_could_start_ends_the_service(family: Families):
    parent = family(2, "second_fails")
    assert parent.end()[0] == 2
    assert not is_alive(parent.pid(1))


def test_one_that_fails_while_others_serve_is_tried_again(family: Families, tmp_path: Path):
    (tmp_path / "broken").touch()
    parent = family(2, "fail_when_repeated")
    parent.wait_for_workers(1, 2)
    first = parent.pid(1)
    os.kill(first, signal.SIGKILL)
    until(lambda: parent.has("1.failed"))
    (tmp_path / "broken").unlink()
    until(lambda: parent.pid(1) != first)
    parent.parent.terminate()
    code, out, _ = parent.end()
    assert code == 0
    assert "ended with exit code 3; the next one starts in 0.2 s" in out


def test_one_that_cannot_be_begun_while_others_serve_is_tried_again(
    family: Families, tmp_path: Path
):
    parent = family(2)
    parent.wait_for_workers(1, 2)
    first, other = parent.pid(1), parent.pid(2)
    (tmp_path / "full").touch()
    os.kill(first, signal.SIGKILL)
    until(lambda: parent.has("refused"))
    assert is_alive(other)
    (tmp_path / "full").unlink()
    until(lambda: parent.pid(1) != first)
    parent.parent.terminate()
    code, out, _ = parent.end()
    assert code == 0
    assert "worker 1 could not be begun (no process is left); the next one starts in" in out
    assert parent.pid(2) == other


def test_one_that_cannot_be_begun_while_none_serves_ends_the_service(
    family: Families, tmp_path: Path
):
    (tmp_path / "full").touch()
    code, out, _ = family(2).end()
    assert code == 1
    assert "worker 1 could not be begun (no process is left) and could not start" in out


def test_one_that_fails_while_none_serves_ends_the_service(family: Families, tmp_path: Path):
    (tmp_path / "broken").touch()
    parent = family(2, "fail_when_repeated")
    parent.wait_for_workers(1, 2)
    for worker in (1, 2):
        os.kill(parent.pid(worker), signal.SIGKILL)
    assert parent.end()[0] == 3


def test_no_worker_outlives_a_parent_that_is_killed(family: Families):
    parent = family(2)
    parent.wait_for_workers(1, 2)
    pids = [parent.pid(1), parent.pid(2)]
    parent.parent.kill()
    until(lambda: not any(map(is_alive, pids)))
    assert parent.parent.wait(DEADLINE_S) == -signal.SIGKILL


def test_a_worker_that_does_not_stop_is_killed(family: Families):
    parent = family(2, "deaf")
    parent.wait_for_workers(1, 2)
    parent.parent.terminate()
    code, out, _ = parent.end()
    assert code == 128 + signal.SIGKILL
    assert "worker 2 did not stop in time and is killed" in out
    assert not is_alive(parent.pid(1))


def test_all_workers_hear_of_a_reload(family: Families):
    parent = family(2)
    parent.wait_for_workers(1, 2)
    parent.parent.send_signal(signal.SIGHUP)
    until(lambda: parent.has("1.hup") and parent.has("2.hup"))
    parent.parent.terminate()
    assert parent.end()[0] == 0


def test_pauses_grow_to_a_longest_one_and_a_long_life_makes_them_short_again():
    place = Place(1)
    pauses = [place.has_ended(1.0) for _ in range(12)]
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S
    assert place.due_at == 1.0 + LONGEST_PAUSE_S
    assert place.has_ended(LIVED_LONG_S) == FIRST_PAUSE_S
