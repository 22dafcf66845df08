"""The packages: advisories, the list of them, the command alone, and what is locked of npm."""

import datetime as dt
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from scripts import audit, npm_packages
from scripts.npm_packages import VENDOR, Package, fetch, packages

ROOT = Path(__file__).resolve().parents[2]
TODAY = dt.date(2026, 11, 21)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The program that asks for the advisories, to be written by the test; nothing is waived."""
    program, waivers = tmp_path / "pip-audit", tmp_path / "waivers.toml"
    program.touch(0o755)
    waivers.touch()
    monkeypatch.setattr(audit, "PIP_AUDIT", program)
    monkeypatch.setattr(audit, "WAIVERS", waivers)
    return program


def package(name: str, *advisories: str) -> dict[str, Any]:
    vulns = [
        {"id": advisory, "aliases": [f"CVE-{advisory}"], "fix_versions": ["2.0"]}
        for advisory in advisories
    ]
    return {"name": name, "version": "1.0", "vulns": vulns}


def waiver(advisory: str, until: dt.date) -> dict[str, Any]:
    return {"id": advisory, "until": until, "reason": "never called"}


@pytest.mark.parametrize("name", ["GHSA-1", "CVE-GHSA-1"])
def test_a_waiver_accepts_an_advisory_by_any_of_its_names(name: str):
    report = {"dependencies": [package("bad", "GHSA-1")]}
    assert list(audit.judge(report, [waiver(name, TODAY)], TODAY)) == []


def test_a_waiver_ends():
    report = {"dependencies": [package("bad", "GHSA-1")]}
    yesterday = TODAY - dt.timedelta(days=1)
    first, second = audit.judge(report, [waiver("GHSA-1", yesterday)], TODAY)
    assert first.startswith("bad 1.0: GHSA-1")
    assert second == "the waiver of GHSA-1 ended on 2026-11-20: look at it again."


NOT_READ = "audit: THE ADVISORIES CANNOT BE REACHED, so nothing was compared"
GOOD = {"dependencies": [package("a")]}
BAD = {"dependencies": [package("a", "GHSA-1")]}
SKIPPED = {"name": "b", "skip_reason": "not found"}
ONE_SKIPPED = {"dependencies": [package("a"), SKIPPED]}
ALL_SKIPPED = {"dependencies": [SKIPPED]}


@pytest.mark.parametrize(
    ("printed", "result"),
    [
        (json.dumps(GOOD), (0, "audit: 1 of 1 packages compared.")),
        (json.dumps(BAD), (1, "audit: a 1.0: GHSA-1; fixed in 2.0.")),
        (json.dumps(ONE_SKIPPED), (0, "audit: 1 of 2 packages compared; NOT COMPARED: b.")),
        (json.dumps(ALL_SKIPPED), (2, NOT_READ)),
        (json.dumps({"dependencies": []}), (2, NOT_READ)),
        ("", (2, f"{NOT_READ} (no network).")),
    ],
)
def test_the_exit_code_is_0_only_where_advisories_were_read_and_none_applies(
    tool: Path, capsys: pytest.CaptureFixture[str], printed: str, result: tuple[int, str]
):
    tool.write_text(f"#!/bin/sh\necho 'no network' >&2\necho '{printed}'\n")
    code, sentence = result
    assert audit.main() == code
    assert sentence in capsys.readouterr().out


def test_every_locked_package_is_in_the_bill():
    program = ROOT / "scripts" / "sbom.py"
    subprocess.run([sys.executable, program], check=True, capture_output=True)
    bill = json.loads((ROOT / "dist" / "sbom.cdx.json").read_text(encoding="utf-8"))
    lines = (ROOT / "requirements" / "service.txt").read_text(encoding="utf-8").splitlines()
    locked = {line.split()[0] for line in lines if line and line[0].isalnum()}
    ours = [item for item in bill["components"] if item["purl"].startswith("pkg:pypi/")]
    listed = {f"{component['name']}=={component['version']}" for component in ours}
    assert {re.sub(r"\[.*\]", "", item) for item in locked} == listed
    assert all(component["externalReferences"][0]["hashes"] for component in ours)

    theirs = [item for item in bill["components"] if item["purl"].startswith("pkg:npm/")]
    assert {item["name"] for item in theirs} == {"preact", "htm"}
    for item in theirs:
        assert item["licenses"][0]["license"]["id"] in ("MIT", "Apache-2.0")
        assert len(item["hashes"][0]["content"]) == 128
    files = {file["name"]: file["hashes"][0] for item in theirs for file in item["components"]}
    assert files.keys() == {str(file.relative_to(ROOT)) for file in VENDOR.glob("*.js")}
    for name, digest in files.items():
        assert digest["content"] == hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None


def test_uvicorn_whose_internals_are_overridden_is_pinned_exactly():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    server = project["project"]["optional-dependencies"]["server"]
    assert any(re.fullmatch(r"uvicorn==\d+\.\d+\.\d+", dependency) for dependency in server)


UV = Path(sys.executable).parent / "uv"
LOCKED = ROOT / "requirements" / "client.txt"
MOST_PACKAGES = 12


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **environ}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of a new environment that has the wheel alone."""
    folder = tmp_path_factory.mktemp("installed")
    for command in (
        [UV, "build", "--wheel", "--no-build-isolation", "--out-dir", folder],
        [UV, "venv", "--python", sys.executable, folder / "venv"],
        [UV, "pip", "install", "--require-hashes", "--only-binary=:all:", "--requirement", LOCKED],
        [UV, "pip", "install", "--no-deps", "--no-index"],
    ):
        wheel = [*folder.glob("*.whl")] if "--no-deps" in command else []
        done = run(*command, *wheel, VIRTUAL_ENV=str(folder / "venv"))
        assert done.returncode == 0, done.stderr
    return folder / "venv" / "bin"


def test_the_command_calls_the_service_and_brings_few_packages_and_no_server(installed: Path):
    ran = run(installed / "kafka-client-quotas", "export", "--server=http://127.0.0.1:1")
    assert (ran.returncode, ran.stdout) == (5, "")
    assert "http://127.0.0.1:1 cannot be reached" in ran.stderr
    listed = run(UV, "pip", "list", "--format=freeze", VIRTUAL_ENV=str(installed.parent)).stdout
    assert len(listed.splitlines()) <= MOST_PACKAGES
    assert "fastapi" not in listed


@pytest.mark.parametrize(
    ("command", "extra"),
    [("kafka-quota-service serve", "server"), ("quota-pipeline utilization", "pipeline")],
)
def test_the_other_programs_say_which_extra_they_need(installed: Path, command: str, extra: str):
    program, *words = command.split()
    ran = run(installed / program, *words)
    assert ran.returncode != 0
    assert ran.stderr.endswith(f" is missing: pip install 'kafka-quota-service[{extra}]'.\n")


def test_the_page_holds_the_libraries_that_were_locked_with_their_licences():
    listed = json.loads((VENDOR / "vendored.json").read_text())
    locked = {name: each for each in packages().values() for name in each.files.values()}
    assert listed.keys() == locked.keys() == {file.name for file in VENDOR.glob("*.js")}
    for name, entry in listed.items():
        digest = hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()
        package = locked[name]
        wanted = (package.name, package.version, package.licence, digest)
        assert (entry["package"], entry["version"], entry["licence"], entry["sha256"]) == wanted
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
