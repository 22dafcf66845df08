"""Write the bill of materials of the service from its locked requirements, as CycloneDX JSON."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "dist" / "sbom.cdx.json"


def main() -> int:
    """Return 0 when it is written; the same requirements give the same bytes."""
    TARGET.parent.mkdir(exist_ok=True)
    command = [ROOT / ".venv" / "bin" / "cyclonedx-py", "requirements", "--output-reproducible"]
    options = ["--short-PURLs", "--pyproject", ROOT / "pyproject.toml", "--output-file", TARGET]
    locked = ROOT / "requirements" / "service.txt"
    done = subprocess.run([*command, *options, locked], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"sbom: {done.stderr.strip()}", file=sys.stderr)
        return 1
    print(f"sbom: wrote {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
