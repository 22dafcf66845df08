"""The archive of a JVM's classes is written once, whole, and used from then on."""

import sys
from pathlib import Path

import pytest

from app.localdev.kafka_jvm import ArchiveRecording, archive_options, archive_path

JARS = [Path("kafka.jar"), Path("log4j.jar")]
JAVA = sys.executable
"""Any program: none of these tests runs it."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def _recorded(recording: ArchiveRecording) -> Path:
    """Return the file that the JVM writes."""
    option = next(option for option in recording.options() if "ArchiveClassesAtExit" in option)
    return Path(option.partition("=")[2])


def _would_record() -> bool:
    """Return whether a JVM that starts now would write the archive."""
    recording = ArchiveRecording(JAVA, JARS)
    options = recording.options()
    recording.finish(complete=False)
    return bool(options)


def test_the_archive_of_a_jvm_that_ended_in_order_is_used() -> None:
    recording = ArchiveRecording(JAVA, JARS)
    _recorded(recording).write_bytes(b"classes")
    assert archive_options(JAVA, JARS) == []

    recording.finish(complete=True)

    assert archive_path(JAVA, JARS).read_bytes() == b"classes"
    assert f"-XX:SharedArchiveFile={archive_path(JAVA, JARS)}" in archive_options(JAVA, JARS)
    assert not _would_record()


def test_what_a_killed_jvm_wrote_is_thrown_away() -> None:
    recording = ArchiveRecording(JAVA, JARS)
    unfinished = _recorded(recording)
    unfinished.write_bytes(b"half of the cl")

    recording.finish(complete=False)

    assert not unfinished.exists()
    assert archive_options(JAVA, JARS) == []
    assert _would_record()


def test_two_brokers_do_not_write_one_archive() -> None:
    first = ArchiveRecording(JAVA, JARS)
    assert first.options() != []
    assert not _would_record()

    first.finish(complete=False)
    assert _would_record()


def test_other_jars_have_another_archive() -> None:
    assert archive_path(JAVA, JARS) != archive_path(JAVA, JARS[:1])


def test_a_cache_that_cannot_be_written_costs_the_archive_alone(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    assert not _would_record()
