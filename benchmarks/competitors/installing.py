"""Install each peer, as it is pinned, into a folder that git ignores.

What a machine lacks leaves one peer out; the run goes on without it and says so.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from app.java import JavaMissingError, find_java
from app.localdev.jars import class_path, kafka_version
from app.localdev.kafka import jvm_environment
from app.localdev.local_directory import LocalDevError
from benchmarks.competitors.peers import CURL, Peer, Peers, Start, run_to_end
from benchmarks.measures import BenchmarkError
from benchmarks.stack import Progress

FOLDER: Final = Path("build/peers").absolute()
"""Ignored by git."""

_SOURCES: Final = Path(__file__).parent
_DEADLINE_S: Final = 600.0


class NotInstalledError(Exception):
    """A peer cannot run here.

    Attributes:
        reason: For the page.
        output: Of a program, for the terminal: it may name hosts that no page should.
    """

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.output = output


def installed(
    progress: Progress, wanted: Collection[str], installers: "Mapping[str, Installer]"
) -> Peers:
    """Install the wanted peers; what is there already is not fetched again."""
    present: list[Peer] = []
    left_out: dict[str, str] = {}
    if shutil.which(CURL) is None:
        left_out[CURL] = _missing(CURL)
    for name, install in installers.items():
        if name not in wanted:
            continue
        try:
            present.append(install(FOLDER))
        except NotInstalledError as error:
            left_out[name] = error.reason
            if error.output:
                progress.say(error.output)
    for name, reason in left_out.items():
        progress.say(f"without {name}: {reason}")
    return Peers(present, left_out)


def _kadm(folder: Path) -> Peer:
    """Build the Go program; what it needs comes by the pinned sums of ``go.sum``."""
    go, source, program = _program("go"), _SOURCES / "go", folder / "go" / "quota-peer"
    command = [go, "build", "-modcacherw", "-mod=readonly", "-buildvcs=false", "-o", str(program)]
    environ = {**os.environ, "GOPATH": str(folder / "go-path")}
    _run([*command, "."], source, environ)
    module = source / "go.mod"
    pins = [f"{name} {pinned_module(module, path)}" for name, path in _MODULES.items()]
    runtime = _run([go, "version"], source, environ).split()[2].removeprefix("go")
    return Peer("kadm (Go)", f"{', '.join(pins)} on Go {runtime}", [str(program)], environ)


_MODULES: Final = {
    "kadm": "github.com/twmb/franz-go/pkg/kadm",
    "franz-go": "github.com/twmb/franz-go",
}


def pinned_module(module: Path, path: str) -> str:
    """Return the version that a ``go.mod`` requires."""
    found = re.search(rf"^\s*{re.escape(path)} v(\S+)", module.read_text(), re.MULTILINE)
    return found[1] if found else "unknown"


def _java(folder: Path) -> Peer:
    """Compile the Java program against the broker's own jars."""
    try:
        java = str(find_java())
        jars = os.pathsep.join(str(jar) for jar in class_path())
    except (JavaMissingError, LocalDevError) as error:
        raise NotInstalledError("there is no Java, or its jars are missing", str(error)) from error
    environ, classes = jvm_environment(), folder / "java"
    if "jdk.compiler" not in _run([java, "--list-modules"], _SOURCES, environ):
        raise NotInstalledError("the Java that was found has no compiler: set JAVA_HOME to a JDK")
    compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", str(classes)]
    source = _SOURCES / "java" / "QuotaPeer.java"
    _run([*compiler, "-cp", jars, str(source)], _SOURCES, environ)
    class_paths = os.pathsep.join([str(classes), jars])
    command = [java, "-Xmx1g", "-XX:+UseG1GC", "-cp", class_paths, "QuotaPeer"]
    return Peer(
        "Java AdminClient", f"kafka-clients {kafka_version()}, the broker's Java", command, environ
    )


def _node(folder: Path) -> Peer:
    """Install the Node program with npm, by its lock file."""
    node, npm, target = _program("node"), _program("npm"), folder / "node"
    target.mkdir(parents=True, exist_ok=True)
    lock, stamp = (_SOURCES / "node" / "package-lock.json").read_bytes(), target / "installed"
    for name in ("package.json", "package-lock.json", ".npmrc", "peer.mjs"):
        shutil.copyfile(_SOURCES / "node" / name, target / name)
    if not stamp.exists() or stamp.read_bytes() != lock:
        _run([npm, "ci"], target, os.environ)
        stamp.write_bytes(lock)
    # A Node that is too old installs the package and cannot load it.
    _run(
        [node, "--input-type=module", "--eval", "import '@platformatic/kafka'"], target, os.environ
    )
    node_version = _run([node, "--version"], target, os.environ).strip().removeprefix("v")
    pinned = re.search(r'"@platformatic/kafka": "(.+)"', (target / "package.json").read_text())
    release = f"{pinned[1] if pinned else 'unknown'} on Node {node_version}"
    return Peer("@platformatic/kafka (Node)", release, [node, str(target / "peer.mjs")], os.environ)


def _kafka_python(_folder: Path) -> Peer:
    """Nothing to install: the project depends on it."""
    script = str(_SOURCES / "kafka_python_peer.py")
    release = f"{version('kafka-python')} on {sys.implementation.name} {sys.version.split()[0]}"
    return Peer("kafka-python", release, [sys.executable, script], os.environ)


Installer = Callable[[Path], Peer]

INSTALLERS: Final[Mapping[str, Installer]] = {
    "kadm": _kadm,
    "java": _java,
    "node": _node,
    "kafka-python": _kafka_python,
}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotInstalledError(_missing(name))
    return found


def _missing(name: str) -> str:
    return f"there is no `{name}` on the PATH"


def _run(command: Sequence[str], directory: Path, environ: Mapping[str, str]) -> str:
    """Run a program to its end; return its standard output.

    Raises:
        NotInstalledError: It failed.
    """
    try:
        return run_to_end(Start(command, environ), directory, _DEADLINE_S)
    except BenchmarkError as error:
        reason = f"`{Path(command[0]).name} {command[1]}` failed"
        raise NotInstalledError(reason, str(error)) from error
