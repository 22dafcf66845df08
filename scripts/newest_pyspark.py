"""Run the tests of the pipeline with the newest PySpark, in an environment of its own.

Locked is the newest that Iceberg works with. Arguments go to pytest.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-pyspark"
LOCKED, NEWEST = (ROOT / "requirements" / name for name in ("dev.txt", "pyspark-newest.txt"))


def main() -> int:
    """Return pytest's exit code."""
    uv = ROOT / ".venv" / "bin" / "uv"
    subprocess.run([uv, "venv", "--allow-existing", "--python", sys.executable, VENV], check=True)
    for words in (
        ("sync", "--require-hashes", LOCKED),
        ("install", "--require-hashes", "--no-deps", "--requirement", NEWEST),
        ("install", "--no-deps", "--no-build-isolation", "--offline", "--editable", "."),
    ):
        environ = {**os.environ, "VIRTUAL_ENV": str(VENV)}
        subprocess.run([uv, "pip", *words], cwd=ROOT, env=environ, check=True)
    command = [VENV / "bin" / "python", "-m", "pytest", *(sys.argv[1:] or ["tests/pipeline"])]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
