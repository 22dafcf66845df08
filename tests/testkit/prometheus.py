"""Programs of Prometheus and of VictoriaMetrics, as packages and modules have them."""

import os
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


def go_program(module: str, folder: Path) -> Path:
    """Return the program of a Go module, built into a folder unless it is on this machine."""
    name = module.partition("@")[0].rpartition("/")[2]
    if found := shutil.which(name):
        return Path(found)
    environ = {**os.environ, "GOBIN": str(folder), "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    subprocess.run(["go", "install", module], env=environ, check=True)
    return folder / name
