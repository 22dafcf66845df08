"""The bill of materials names every locked package of the service, by version and hash."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_locked_package_is_in_the_bill():
    program = ROOT / "scripts" / "sbom.py"
    subprocess.run([sys.executable, program], check=True, capture_output=True)
    bill = json.loads((ROOT / "dist" / "sbom.cdx.json").read_text(encoding="utf-8"))
    lines = (ROOT / "requirements" / "service.txt").read_text(encoding="utf-8").splitlines()
    locked = {line.split()[0] for line in lines if line and line[0].isalnum()}
    listed = {f"{one['name']}=={one['version']}" for one in bill["components"]}
    assert {re.sub(r"\[.*\]", "", one) for one in locked} == listed
    assert all(one["externalReferences"][0]["hashes"] for one in bill["components"])
