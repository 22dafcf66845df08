"""docker-compose.yml fits the published schema of the Compose specification."""

import subprocess
import sys
from pathlib import Path

COMPOSE = Path(__file__).resolve().parents[2] / "docker-compose.yml"


def check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return subprocess.run([*command, path], capture_output=True, text=True, check=False)


def test_it_fits_the_schema():
    done = check(COMPOSE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_refuses_a_misspelt_word(tmp_path: Path):
    misspelt = tmp_path / "docker-compose.yml"
    text = COMPOSE.read_text(encoding="utf-8")
    misspelt.write_text(text.replace("healthcheck:", "healtcheck:", 1), encoding="utf-8")
    done = check(misspelt)
    assert done.returncode == 1
    assert "healtcheck" in done.stdout
