"""Run the conformance tests on other versions of Kafka than `make test` does.

They ask a real broker the same questions as the service: describe, alter, resolve, authorize. The
last test kills and pauses the broker and compares its metadata log with the audit log.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from app.localdev.jars import OTHER_KAFKA_VERSIONS, lock_file

ROOT = Path(__file__).resolve().parent.parent

REAL_BROKER = "tests/faults/crash_recovery/test_real_broker.py"
TESTS = (
    "tests/contract/test_client_quota_admin.py",
    "tests/integration/kafka",
    "tests/integration/http/test_describe_conformance.py",
    "tests/integration/http/test_alter_conformance.py",
    "tests/integration/http/test_resolve_conformance.py",
    "tests/integration/http/authorization",
    "tests/faults/authorization",
    f"{REAL_BROKER}::test_a_real_broker_that_is_killed_paused_and_cut_off_leaves_nothing_wrong",
)


def main() -> int:
    """Return 0 when every version passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = " ".join(OTHER_KAFKA_VERSIONS)
    parser.add_argument("versions", nargs="*", help=f"of Kafka; default {default}")
    versions = parser.parse_args().versions or OTHER_KAFKA_VERSIONS
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
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=0", "-m", "", *TESTS]
    environ = {**os.environ, "QUOTAS_LOCAL_KAFKA_VERSION": version}
    passed = subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0
    verdict = "passed" if passed else "FAILED"
    print(f"== Kafka {version} {verdict} in {time.monotonic() - begun:.0f} s", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main())
