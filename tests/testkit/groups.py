"""The workers of `pytest -n`: each group of tests runs on one of them, in order.

A group is what shares a broker, a Spark or a service, and changes it: fixtures of the session live
once on each worker, and end with their group. Whatever is not in the table is a group for each
file, and those files share what they start.
"""

import fcntl
import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.testkit import ledger

GROUPS: Final[Mapping[str, str]] = {
    "tests/pipeline": "Spark",
    "tests/integration/http": "a service on a broker",
    "tests/faults/http": "services that are disturbed",
    "tests/faults/crash_recovery": "services that are killed",
    "tests/integration/http/authentication": "a broker",
    "tests/integration/http/authorization": "a broker",
    "tests/integration/kafka": "a broker",
    "tests/integration/client": "a broker",
    "tests/browser": "a broker",
    "tests/contract": "a broker",
    "tests/pipeline/test_interrupts.py": "a pipeline that is interrupted",
    "tests/pipeline/collect": "jobs without Spark",
    "tests/pipeline/history/test_fold.py": "jobs without Spark",
    "tests/pipeline/synth": "jobs without Spark",
    "tests/pipeline/test_options.py": "jobs without Spark",
    "tests/pipeline/test_plot.py": "jobs without Spark",
    "tests/pipeline/test_drift_sources.py": "jobs without Spark",
    "tests/pipeline/test_capacity.py": "jobs without Spark",
    "tests/pipeline/test_schedule.py": "jobs without Spark",
    "tests/pipeline/test_secrets.py": "jobs without Spark",
    "tests/pipeline/test_spark.py": "jobs without Spark",
    "tests/integration/localdev": "a broker of everything",
}
"""A folder or file to its group: the deepest wins. The groups start in this order, the longest
first, and the files of no group after them. The first five take most of the time: a run has as many
workers."""

_SERVERS: Final = ("tests/integration/", "tests/faults/")
_ORDER: Final = tuple(dict.fromkeys(GROUPS.values()))


def group_of(path: str) -> str:
    """Return the group of a test file, which is a path relative to the root of the project."""
    folders = [folder for folder in GROUPS if f"{path}/".startswith(f"{folder}/")]
    return GROUPS[max(folders, key=len)] if folders else path


def _position(path: str) -> int:
    group = group_of(path)
    if group in _ORDER:
        return _ORDER.index(group)
    return len(_ORDER) + (not path.startswith(_SERVERS))


class GroupScheduling(LoadScopeScheduling):
    """Give each worker the next group, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    """Divide the tests by group, whatever `--dist` says."""
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the groups that take longest first; a run without workers keeps pytest's order."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _position(_file_of(item)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Stop the servers of a group in the table when its last test has run: idle ones cost, too."""
    yield
    if nextitem is not None and hasattr(item.config, "workerinput"):
        group, following = (group_of(_file_of(each)) for each in (item, nextitem))
        if group in _ORDER and group != following:
            item.session._setupstate.teardown_exact(None)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Where there is no bytecode, let one worker collect before the others, which all need it."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    with Path(os.environ[ledger.VARIABLE]).open() as lock, _without_garbage_collection():
        if not _has_bytecode(session.config.rootpath / "tests"):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                fcntl.flock(lock, fcntl.LOCK_SH)
        return (yield)


def _has_bytecode(folder: Path) -> bool:
    """Return whether an earlier run has compiled each test module below a folder."""
    compiled = {path.name.partition(".")[0] for path in folder.rglob("__pycache__/*-pytest-*.pyc")}
    return compiled >= {path.stem for path in folder.rglob("test_*.py")}


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Let what is made in the block live as long as the process: that is not looked through."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
