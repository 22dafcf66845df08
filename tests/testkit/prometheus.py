"""Programs of Prometheus and of VictoriaMetrics, as packages have them, and servers of both."""

import shutil
import subprocess
from pathlib import Path


def debian_program(package: str, name: str, folder: Path) -> Path:
    """Return a program of this machine, else that of Debian's package, unpacked into a folder."""
    if found := shutil.which(name):
        return Path(found)
    if not (program := folder / "usr" / "bin" / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True)
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", archive, folder], check=True)
    return program
