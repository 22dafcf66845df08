"""What deploy/ has for schedulers calls jobs with options that there are, and in this order."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from app.pipeline.main import _parser

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "schedule"


def as_airflow_renders(text: str) -> str:
    """Return a command of the run for 08:05, whose interval begins and ends at that time.

    Source: ``CronTriggerTimetable``, what Airflow 3 makes of a cron expression.
    """
    names = {
        "logical_date": datetime(2026, 11, 20, 8, 5, tzinfo=UTC),
        "macros": SimpleNamespace(timedelta=timedelta),
    }
    return re.sub(r"{{ (.*?) }}", lambda found: str(eval(found[1], {}, names)), text)  # noqa: S307


def of_systemd() -> Iterator[list[str]]:
    for line in (FOLDER / "quota-pipeline.service").read_text().splitlines():
        if line.startswith("ExecStart="):
            yield shlex.split(line.partition("=")[2])[1:]


def of_kubernetes() -> Iterator[list[str]]:
    (job,) = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "pipeline.yaml").read_text())
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    yield from (item["args"] for item in (*pod["initContainers"], *pod["containers"]))


def of_airflow() -> Iterator[list[str]]:
    """Yield what the operators run; Airflow itself is not installed here."""
    tree = ast.parse((FOLDER / "airflow_dag.py").read_text())
    names = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "bash_command":
            text = str(eval(compile(ast.Expression(node.value), "", "eval"), {}, names))  # noqa: S307
            yield shlex.split(as_airflow_renders(text))[1:]


@pytest.mark.parametrize("scheduler", [of_systemd, of_kubernetes, of_airflow])
def test_a_schedule_takes_the_quotas_and_then_the_hours(scheduler: object):
    assert callable(scheduler)
    snapshot, run = (_parser(each).parse_args(each) for each in scheduler())
    assert (snapshot.job, run.job) == ("snapshot", "run")
    assert run.quotas == run.out == snapshot.out
    assert run.format == "prometheus"
    assert run.pg is not None
    if scheduler is of_airflow:
        hours = tuple(datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (7, 8))
        assert (run.since, run.until) == hours
    else:
        assert run.since_last


def test_systemd_understands_the_units(tmp_path: Path):
    for file in FOLDER.glob("quota-pipeline.*"):
        text = file.read_text().replace("/opt/quotas/bin/quota-pipeline", "/bin/true")
        (tmp_path / file.name).write_text(text)
    units = [str(tmp_path / f"quota-pipeline.{kind}") for kind in ("service", "timer")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
