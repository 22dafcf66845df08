"""Write the bill of materials of the service, as CycloneDX JSON.

It lists the locked requirements, and the libraries of npm that the page brings along.
"""

import base64
import json
import subprocess
import sys
from typing import Any

from npm_packages import ROOT, VENDOR, packages

TARGET = ROOT / "dist" / "sbom.cdx.json"


def main() -> int:
    """Return 0 when it is written; the same requirements give the same bytes."""
    TARGET.parent.mkdir(exist_ok=True)
    command = [ROOT / ".venv" / "bin" / "cyclonedx-py", "requirements", "--output-reproducible"]
    options = ["--short-PURLs", "--pyproject", ROOT / "pyproject.toml"]
    locked = ROOT / "requirements" / "service.txt"
    done = subprocess.run([*command, *options, locked], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"sbom: {done.stderr.strip()}", file=sys.stderr)
        return 1
    bill = json.loads(done.stdout)
    bill["components"] += vendored()
    TARGET.write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"sbom: wrote {TARGET.relative_to(ROOT)}")
    return 0


def vendored() -> list[dict[str, Any]]:
    """Return the libraries of the page: the archive of each, and its files as they are served."""
    files = json.loads((VENDOR / "vendored.json").read_text(encoding="utf-8"))
    return [
        {
            "type": "library",
            "bom-ref": f"npm-{package.name}",
            "name": package.name,
            "version": package.version,
            "purl": f"pkg:npm/{package.name}@{package.version}",
            "licenses": [{"license": {"id": package.licence}}],
            "hashes": [{"alg": "SHA-512", "content": _hex(package.integrity)}],
            "components": [
                {
                    "type": "file",
                    "name": str((VENDOR / name).relative_to(ROOT)),
                    "hashes": [{"alg": "SHA-256", "content": files[name]["sha256"]}],
                }
                for name in package.files.values()
            ],
        }
        for package in packages().values()
        if package.files
    ]


def _hex(integrity: str) -> str:
    """Return a digest as npm writes it (``sha512-`` and base64) in hexadecimal digits."""
    return base64.b64decode(integrity.removeprefix("sha512-")).hex()


if __name__ == "__main__":
    sys.exit(main())
