"""The bound of connections follows what the system grants."""

import resource

import pytest

from app.http.connections import OTHER_FILES, raise_fd_limit

INFINITE = resource.RLIM_INFINITY


class Files:
    """The limits of a process."""

    def __init__(self) -> None:
        self.limits = (0, 0)

    def get(self, _: int) -> tuple[int, int]:
        return self.limits

    def set(self, _: int, limits: tuple[int, int]) -> None:
        self.limits = limits


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    files = Files()
    monkeypatch.setattr(resource, "getrlimit", files.get)
    monkeypatch.setattr(resource, "setrlimit", files.set)
    return files


@pytest.mark.parametrize(
    ("before", "room", "after"),
    [
        ((5000, 5000), 1000, (5000, 5000)),
        ((1000 + OTHER_FILES, 5000), 1000, (1000 + OTHER_FILES, 5000)),
        ((256, 5000), 1000, (1000 + OTHER_FILES, 5000)),
        ((256, INFINITE), 1000, (1000 + OTHER_FILES, INFINITE)),
        ((256, 512), 512 - OTHER_FILES, (512, 512)),
        ((256, 256), 256 - OTHER_FILES, (256, 256)),
        ((50, 50), 1, (50, 50)),
        ((INFINITE, INFINITE), 1000, (INFINITE, INFINITE)),
    ],
)
def test_as_many_connections_fit_as_files_are_granted(
    files: Files, before: tuple[int, int], room: int, after: tuple[int, int]
):
    files.limits = before
    assert raise_fd_limit(1000) == room
    assert files.limits == after
