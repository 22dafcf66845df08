"""``export --out``: the whole document, or the file that was there."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.client.conftest import Reply, Run

FORMER = "apiVersion: quotas/v1\nquotas: []\n"
EXPORT = Reply(200, b"apiVersion: quotas/v1\nquotas:\n" + b"  # a line\n" * 10_000)
FULL_AT = 4096


@contextmanager
def small_files() -> Iterator[None]:
    """Let the kernel write no more of a file, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_AT, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_an_export_that_does_not_fit_leaves_the_file_that_was_there(run: Run, tmp_path: Path):
    file = tmp_path / "quotas.yaml"
    file.write_text(FORMER)
    with small_files():
        ran = run(["export", "--out", str(file)], EXPORT)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "cannot be written" in ran.err
    assert file.read_text() == FORMER
    assert list(tmp_path.iterdir()) == [file]


def test_an_export_keeps_the_rights_of_a_file_and_the_link_to_it(run: Run, tmp_path: Path):
    file, link = tmp_path / "quotas.yaml", tmp_path / "link"
    file.write_text(FORMER)
    file.chmod(0o640)
    link.symlink_to(file)
    assert run(["export", "--out", str(link)], EXPORT).code == 0
    assert link.is_symlink()
    assert file.read_bytes() == EXPORT.body
    assert file.stat().st_mode & 0o777 == 0o640


def test_an_export_to_a_device_that_is_full_says_so(run: Run):
    ran = run(["export", "--out", "/dev/full"], EXPORT)
    assert (ran.code, Path("/dev/full").is_char_device()) == (2, True)
    assert "No space left" in ran.err
