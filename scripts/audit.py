"""Compare the locked packages with the published advisories.

A waiver in `requirements/waivers.toml` accepts an advisory until a day, for a reason. Exit codes: 0
where no other advisory applies; 1 where one applies, or a waiver is not valid any more; 2 where no
advisory could be read, so that there is no verdict.
"""

import datetime as dt
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PIP_AUDIT = ROOT / ".venv" / "bin" / "pip-audit"
LOCKED = ROOT / "requirements" / "dev.txt"
WAIVERS = ROOT / "requirements" / "waivers.toml"

_NOT_READ = 2

Report = Mapping[str, Any]


def main() -> int:
    """Return 0 when advisories were read and nothing speaks against the locked packages."""
    report = _read_advisories()
    if report is None:
        return _NOT_READ
    today = dt.datetime.now(dt.UTC).date()
    waivers = tomllib.loads(WAIVERS.read_text(encoding="utf-8")).get("waiver", [])
    faults = list(judge(report, waivers, today))
    for fault in faults:
        print(f"audit: {fault}")
    print(f"audit: {summary(report)}")
    if not _compared(report):
        return _NOT_READ
    return 1 if faults else 0


def _compared(report: Report) -> list[Report]:
    """Return the packages that were compared; of the others nothing is published."""
    return [dependency for dependency in report["dependencies"] if "skip_reason" not in dependency]


def summary(report: Report) -> str:
    """Say how many packages were compared; those that nothing is published about were not."""
    packages = report["dependencies"]
    unread = [package["name"] for package in packages if "skip_reason" in package]
    if not _compared(report):
        return "THE ADVISORIES CANNOT BE REACHED, so nothing was compared."
    text = f"{len(packages) - len(unread)} of {len(packages)} packages compared"
    return f"{text}; NOT COMPARED: {', '.join(unread)}." if unread else f"{text}."


def judge(report: Report, waivers: Sequence[Report], today: dt.date) -> Iterator[str]:
    """Yield what is to be acted on: advisories without a waiver, and waivers out of date."""
    accepted = {waiver["id"] for waiver in waivers if waiver["until"] >= today}
    for package in report["dependencies"]:
        for advisory in package.get("vulns", []):
            ids = {advisory["id"], *advisory.get("aliases", [])}
            if not ids & accepted:
                fixed = ", ".join(advisory.get("fix_versions", [])) or "none yet"
                yield f"{package['name']} {package['version']}: {advisory['id']}; fixed in {fixed}."
    for waiver in waivers:
        if waiver["until"] < today:
            yield f"the waiver of {waiver['id']} ended on {waiver['until']}: look at it again."


def _read_advisories() -> Report | None:
    command = [PIP_AUDIT, "--requirement", LOCKED, "--require-hashes", "--disable-pip"]
    done = subprocess.run(
        [*command, "--format", "json", "--progress-spinner", "off"],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        report: Report = json.loads(done.stdout)
    except json.JSONDecodeError:
        reason = done.stderr.strip().splitlines()[-1:] or ["no answer"]
        print(f"audit: THE ADVISORIES CANNOT BE REACHED, so nothing was compared ({reason[0]}).")
        return None
    return report


if __name__ == "__main__":
    sys.exit(main())
