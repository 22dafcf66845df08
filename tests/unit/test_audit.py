"""What the comparison with published advisories says, on answers of the tool that asks."""

import datetime as dt
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TODAY = dt.date(2026, 11, 21)


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    import audit  # noqa: PLC0415 - a script, not a module of the project

    return audit


def package(name: str, *advisories: str) -> dict[str, Any]:
    vulns = [{"id": one, "aliases": [f"CVE-{one}"], "fix_versions": ["2.0"]} for one in advisories]
    return {"name": name, "version": "1.0", "vulns": vulns}


def waiver(advisory: str, until: dt.date) -> dict[str, Any]:
    return {"id": advisory, "until": until, "reason": "never called"}


def test_an_advisory_is_named_with_the_version_that_fixes_it(audit: Any):
    report = {"dependencies": [package("good"), package("bad", "GHSA-1")]}
    assert list(audit.judge(report, [], TODAY)) == ["bad 1.0: GHSA-1; fixed in 2.0."]


@pytest.mark.parametrize("name", ["GHSA-1", "CVE-GHSA-1"])
def test_a_waiver_accepts_an_advisory_by_any_of_its_names(audit: Any, name: str):
    report = {"dependencies": [package("bad", "GHSA-1")]}
    assert list(audit.judge(report, [waiver(name, TODAY)], TODAY)) == []


def test_a_waiver_ends(audit: Any):
    report = {"dependencies": [package("bad", "GHSA-1")]}
    yesterday = TODAY - dt.timedelta(days=1)
    first, second = audit.judge(report, [waiver("GHSA-1", yesterday)], TODAY)
    assert first.startswith("bad 1.0: GHSA-1")
    assert second == "the waiver of GHSA-1 ended on 2026-11-20: look at it again."


def test_packages_that_were_not_compared_are_not_called_good(audit: Any):
    skipped = {"name": "private", "skip_reason": "not found"}
    assert audit.summary({"dependencies": [package("a")]}) == "1 of 1 packages compared."
    assert audit.summary({"dependencies": [package("a"), skipped]}).endswith(
        "1 of 2 packages compared; NOT COMPARED: private."
    )
    assert "CANNOT BE REACHED" in audit.summary({"dependencies": [skipped]})
