"""The rules of deploy/ put the right limit beside each broker's rate, as Prometheus evaluates."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.testkit.prometheus import debian_program

pytestmark = pytest.mark.long

RULES = Path(__file__).resolve().parents[3] / "deploy" / "prometheus" / "rules.yml"


def test_limits_follow_the_precedence_and_alarms_their_thresholds(tmp_path: Path):
    promtool = debian_program("prometheus", "promtool", tmp_path / "package")
    for file in (RULES, Path(__file__).with_name("rules_test.yml")):
        shutil.copy(file, tmp_path)
    subprocess.run([promtool, "check", "rules", "rules.yml"], cwd=tmp_path, check=True)
    done = subprocess.run(
        [promtool, "test", "rules", "rules_test.yml"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
