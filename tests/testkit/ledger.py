"""Counts the servers and JVMs that a run of pytest starts, by kind, over all its processes.

An audit hook in each Python process of the run sees each process that it starts. The folder
`ledger_site` is on PYTHONPATH, so that the hook is in the commands that tests start as well.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

VARIABLE: Final = "TEST_LEDGER"
"""The environment variable that names the ledger's file: a line for each start."""

KINDS: Final = {
    "broker": r" kafka\.Kafka ",
    "JVM of StorageTool": r" kafka\.tools\.StorageTool ",
    "JVM of another Kafka tool": r" (org\.apache\.)?kafka\.(admin|tools)\.\w+",
    "JVM of Spark and of its launcher": r"/spark-submit | org\.apache\.spark\.",
    "`java -version`": r"java -version$",
    "JVM of another program": r"(^|/)java ",
    "Postgres": r"/postgres -D ",
    "initdb": r"/initdb ",
    "fork server of services": r" tests\.testkit\.forkserver$",
    "service": r"(app\.main|/kafka-quota-service) serve",
    "command `dev`": r"(app\.main|/kafka-quota-service) dev",
    "another command of the service": r"(app\.main|/kafka-quota-service) \w",
    "command of the pipeline": r"(app\.pipeline\.main|/quota-pipeline) \w",
    "command of the client": r"(app\.client\.main|/kafka-client-quotas) ",
    "benchmark": r" -m benchmarks",
}
"""What is counted: the first pattern that is found in the command line, as far as any is."""


def kind_of(command: Sequence[object]) -> str | None:
    """Return the kind of a program by its command line, or null where it is not counted."""
    line = " ".join(map(_text, command))
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, line)), None)


def _text(word: object) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)


def count(kind: str) -> None:
    """Note a start, where pytest runs."""
    if ledger := os.environ.get(VARIABLE):
        with Path(ledger).open("a", encoding="utf-8") as file:
            file.write(f"{kind}\n")


def counts(ledger: Path) -> Counter[str]:
    """Return how many programs of each kind were started."""
    return Counter(ledger.read_text(encoding="utf-8").splitlines())


def watch() -> None:
    """Count what this process starts from now on."""
    sys.addaudithook(_note)


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen":
        command = arguments[1]
        words = command if isinstance(command, list | tuple) else [command]
        if kind := kind_of(words):
            count(kind)
