"""Run tests with other versions than `make test` does: of Kafka, of Python, of PySpark.

`kafka` runs the conformance tests, which ask a real broker the same questions as the service:
describe, alter, resolve, authorize; the last kills and pauses the broker and compares its metadata
log with the audit log. `python` runs the unit tests with the newest other Python of this machine;
the exit code is 75 where it has none, because nothing was run then. `pyspark` runs the tests of the
pipeline with the newest PySpark; locked is the newest that Iceberg works with. Both get an
environment of their own, as `.venv-3.13`.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from install import PREFERRED, ROOT, good_pythons

from app.localdev.jars import OTHER_KAFKA_VERSIONS, lock_file

NOT_RUN = os.EX_TEMPFAIL

REAL_BROKER = "tests/faults/crash_recovery/test_real_broker.py"
CONFORMANCE = (
    "tests/contract/test_client_quota_admin.py",
    "tests/integration/kafka",
    "tests/integration/http/test_describe_conformance.py",
    "tests/integration/http/test_alter_conformance.py",
    "tests/integration/http/test_resolve.py",
    "tests/integration/http/authorization",
    f"{REAL_BROKER}::test_a_real_broker_that_is_killed_paused_and_cut_off_leaves_nothing_wrong",
)


def main() -> int:
    """Return 0 when everything passed, 75 when it was not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    of = parser.add_subparsers(dest="of", required=True)
    kafka = of.add_parser("kafka", help="the conformance tests")
    default = " ".join(OTHER_KAFKA_VERSIONS)
    kafka.add_argument("versions", nargs="*", help=f"default {default}")
    of.add_parser("python", help="the unit tests")
    pyspark = of.add_parser("pyspark", help="the tests of the pipeline")
    pyspark.add_argument("arguments", nargs=argparse.REMAINDER, help="of pytest")
    options = parser.parse_args()
    if options.of == "python":
        return with_python()
    if options.of == "pyspark":
        return with_pyspark(options.arguments or ["-m", "not long", "tests/pipeline"])
    versions = options.versions or OTHER_KAFKA_VERSIONS
    for version in versions:
        if not lock_file(f"kafka-{version}").exists():
            parser.error(f"the jars of Kafka {version} are not locked (scripts/lock_jars.py)")
    failed = [version for version in versions if not _conforms(version)]
    if failed:
        print(f"Failed on Kafka {', '.join(failed)}.")
    return 1 if failed else 0


def _conforms(version: str) -> bool:
    print(f"== conformance on Kafka {version}", flush=True)
    begun = time.monotonic()
    words = ["-q", "--timeout=0", "-m", "", *CONFORMANCE]
    passed = _pytest(sys.executable, *words, QUOTAS_LOCAL_KAFKA_VERSION=version) == 0
    verdict = "passed" if passed else "FAILED"
    print(f"== Kafka {version} {verdict} in {time.monotonic() - begun:.0f} s", flush=True)
    return passed


def with_python() -> int:
    """Install the project with another Python, and run its unit tests."""
    tested = PREFERRED.read_text().strip()
    others = [python for python in good_pythons() if python.minor_version != tested]
    if not others:
        print(f"NOT RUN: only Python {tested} was found; install another from 3.11 on.")
        return NOT_RUN
    newest = others[0]
    venv = ROOT / f".venv-{newest.minor_version}"
    install = [sys.executable, Path(__file__).with_name("install.py"), newest.base, "--venv", venv]
    subprocess.run(install, check=True)
    print(f"== unit tests with Python {newest.minor_version}", flush=True)
    return _pytest(venv / "bin" / "python", "-q", "-n", "4", "tests/unit")


def with_pyspark(arguments: list[str]) -> int:
    """Install the newest PySpark beside everything else that is locked, and run tests."""
    uv, venv = ROOT / ".venv" / "bin" / "uv", ROOT / ".venv-pyspark"
    locked, newest = (ROOT / "requirements" / name for name in ("dev.txt", "pyspark-newest.txt"))
    subprocess.run([uv, "venv", "--allow-existing", "--python", sys.executable, venv], check=True)
    for words in (
        ("sync", "--require-hashes", locked),
        ("install", "--require-hashes", "--no-deps", "--requirement", newest),
        ("install", "--no-deps", "--no-build-isolation", "--offline", "--editable", "."),
    ):
        environ = {**os.environ, "VIRTUAL_ENV": str(venv)}
        subprocess.run([uv, "pip", *words], cwd=ROOT, env=environ, check=True)
    return _pytest(venv / "bin" / "python", *arguments)


def _pytest(python: str | Path, *arguments: str, **environ: str) -> int:
    command = [python, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
