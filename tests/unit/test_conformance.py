"""The script that runs the conformance tests names tests that exist."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_named_test_exists():
    named = runpy.run_path(str(ROOT / "scripts" / "conformance.py"))["TESTS"]
    assert [path for path in named if not (ROOT / path).exists()] == []
