"""The packages of npm: what is locked is what the page holds, and another archive is refused."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from scripts import npm_packages
from scripts.npm_packages import VENDOR, Package, fetch, packages


def test_the_page_holds_the_libraries_that_were_locked():
    listed = json.loads((VENDOR / "vendored.json").read_text())
    locked = {name: each for each in packages().values() for name in each.files.values()}
    assert listed.keys() == locked.keys() == {file.name for file in VENDOR.glob("*.js")}
    for name, entry in listed.items():
        digest = hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()
        package = locked[name]
        wanted = (package.name, package.version, package.licence, digest)
        assert (entry["package"], entry["version"], entry["licence"], entry["sha256"]) == wanted


def test_every_library_of_the_page_comes_with_its_licence():
    licences = (VENDOR / "licences.txt").read_text()
    for package in packages().values():
        assert (f"{package.name} {package.version}\n" in licences) == bool(package.files)


def test_another_archive_than_the_locked_one_is_refused_and_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(npm_packages, "CACHE", tmp_path)
    archive = tmp_path / "npm" / "a-1.0.tgz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz"):
        pass
    with pytest.raises(SystemExit, match=r"a 1\.0 is not the package that was locked"):
        fetch(Package("a", "1.0", "sha512-of-another", "MIT"))
    assert not archive.exists()
