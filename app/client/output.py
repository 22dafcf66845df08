"""What a command prints: text as in KIP-546, tables, YAML, colours, progress.

Source: KIP-546, ``ClientQuotasCommand``, "Output".
"""

import json
import os
import re
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TextIO

from app.client.errors import UsageError
from app.documents import API_VERSION
from app.documents.text import csv_lines, pad, width_of, yaml_float, yaml_text
from app.domain.entities import visible

_COLOURS: Final = {"red": 31, "green": 32, "yellow": 33, "bold": 1, "dim": 2}
_PROGRESS_AFTER_S: Final = 1.0
_PROGRESS_EVERY_S: Final = 0.5


@dataclass(frozen=True)
class Style:
    """Colours, or none: as ``--color`` says, else on a terminal unless ``NO_COLOR`` is set.

    Source: no-color.org.
    """

    coloured: bool

    @classmethod
    def of(cls, stream: TextIO, wish: str) -> "Style":
        """Decide for one stream; ``wish`` is ``auto``, ``always`` or ``never``."""
        if wish != "auto":
            return cls(wish == "always")
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return cls(stream.isatty() and not plain)

    def paint(self, text: str, colour: str | None) -> str:
        """Return the text in a colour, if colours are on."""
        if colour is None or not self.coloured:
            return text
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


_COLOUR: Final = re.compile(r"(\x1b\[(?:[0-2]|3[1-3])m)")


def safe_line(line: str) -> str:
    """Return a line in which nothing acts on a terminal but the colours of ``Style``."""
    if line.isprintable():
        return line
    return "".join(
        text if _COLOUR.fullmatch(text) else visible(text) for text in _COLOUR.split(line)
    )


def counted(number: int, singular: str, plural: str) -> str:
    """Return a number with its noun."""
    return f"{number} {singular if number == 1 else plural}"


_WIDEST: Final = 60
"""A longer cell moves what stands behind it in its own row, and in no other."""


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return rows as lines with aligned columns, two blanks apart; no blanks at the end.

    Args:
        rows: Equally long.
        right: The columns that are aligned to the right.
    """
    if not rows:
        return []
    widths = [min(_WIDEST, max(map(width_of, column))) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if at in right else pad(cell, width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


class Progress:
    """Says on a terminal what takes long; a pipe gets nothing."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._next = time.monotonic() + _PROGRESS_AFTER_S
        self._is_visible = False

    def tell(self, done: int, total: int | None = None) -> None:
        """Show how far it is, at most twice a second."""
        now = time.monotonic()
        if now < self._next or not self._stream.isatty():
            return
        self._next = now + _PROGRESS_EVERY_S
        self._is_visible = True
        of = "" if total is None else f" of {total:,}"
        self._stream.write(f"\r\x1b[K{self._what}: {done:,}{of}")
        self._stream.flush()

    def end(self) -> None:
        """Take the line away again."""
        if self._is_visible:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


PROGRAM: Final = "kafka-client-quotas"

_OF_THE_SERVICE: Final = (
    "server",
    "cluster",
    "token_file",
    "user",
    "password_file",
    "cert",
    "key",
    "cacert",
    "profile",
)
"""Options that say which service is asked, and as whom."""

_DEFAULT_TIMEOUT_S: Final = 90.0
"""Longer than the service waits for anything (``wait_ms`` is at most a minute)."""


@dataclass
class Context:
    """One run of the command."""

    options: Namespace
    words: tuple[str, ...] = ()
    """As they were typed."""

    def again(self, *words: str) -> str:
        """Return a command for a shell, which asks the same service; without words this one."""
        if not words:
            return shlex.join([PROGRAM, *self.words])
        named = [name for name in _OF_THE_SERVICE if self.option(name) is not None]
        options = [
            word
            for name in named
            for word in (f"--{name.replace('_', '-')}", str(self.option(name)))
        ]
        return shlex.join([PROGRAM, *words, *options])

    def hint(self, *words: str) -> str:
        """Return a command for a person, with the cluster that was asked for."""
        return self.on_cluster(shlex.join([PROGRAM, *words]))

    def on_cluster(self, command: str) -> str:
        """Return a command with the cluster that was asked for, where one was typed."""
        cluster = self.option("cluster")
        return command if cluster is None else f"{command} --cluster {shlex.quote(cluster)}"

    @cached_property
    def service(self) -> Any:
        """The service, an ``app.client.http.Connection``; made where it is needed."""
        from app.client.configuration import configuration  # noqa: PLC0415 - slow to import
        from app.client.http import Connection  # noqa: PLC0415

        timeout_s = getattr(self.options, "timeout", None) or _DEFAULT_TIMEOUT_S
        return Connection(configuration(self.options, os.environ), timeout_s)

    @property
    def output(self) -> str:
        """The format that was asked for; ``text`` by default."""
        return str(getattr(self.options, "output", None) or "text")

    def refuse_output(self, *formats: str) -> None:
        """Refuse formats that a command does not write."""
        if self.output in formats:
            raise UsageError(f"--output {self.output} is not written here.")

    @cached_property
    def style(self) -> Style:
        """The colours of standard output."""
        return Style.of(sys.stdout, getattr(self.options, "color", None) or "auto")

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option, or the default where it is absent."""
        value = getattr(self.options, name, None)
        return default if value is None else value

    def pick(self, *names: str) -> dict[str, Any]:
        """Return those of some options that are set."""
        return {name: self.option(name) for name in names if self.option(name) is not None}

    def write(self, value: Any, text: Iterable[str], csv: Iterable[Sequence[str]] = ()) -> None:
        """Write a value in the format that was asked for.

        Args:
            value: For JSON, and YAML of the same structure.
            text: Its lines for people.
            csv: Its rows below their heading, where the command writes a table.
        """
        if self.output == "json":
            self.print_json(value)
        elif self.output == "yaml":
            self.print(yaml_lines(value))
        elif self.output == "csv":
            self.print_bytes("".join(csv_lines(csv)).encode())
        else:
            self.print(text)

    def print(self, lines: Iterable[str]) -> None:
        """Write lines to standard output."""
        for line in lines:
            sys.stdout.write(f"{safe_line(line)}\n")

    def print_json(self, value: Any) -> None:
        """Write JSON in ASCII, so that no name acts on a terminal; the values are exact."""
        sys.stdout.write(json.dumps(value, indent=2) + "\n")

    def print_bytes(self, content: bytes) -> None:
        """Write an answer as it came; on a terminal without what would act on it."""
        if sys.stdout.isatty():
            lines = content.decode().removesuffix("\n").split("\n")
            self.print(visible(line.removesuffix("\r")) for line in lines)
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()

    def note(self, text: str) -> None:
        """Tell a person something on standard error."""
        sys.stdout.flush()
        sys.stderr.write(f"{visible(text)}\n")

    @property
    def is_watched(self) -> bool:
        """Whether a person reads along: text, and a terminal."""
        return self.output == "text" and (sys.stdout.isatty() or sys.stderr.isatty())

    def tell_always(self, sentence: str) -> None:
        """Say on standard error what is missing from the output; in JSON it is a member."""
        if self.output != "json":
            self.note(sentence)

    def tell(self, *lines: str) -> None:
        """Write lines for a person who reads along to standard error; a script gets none."""
        if self.is_watched:
            for line in lines:
                self.note(line)

    @property
    def can_ask(self) -> bool:
        """Whether there is a person who can answer a question."""
        return self.is_watched and bool(sys.stdin) and sys.stdin.isatty()

    def confirm(self, question: str) -> bool:
        """Return whether a person agrees; true where nobody can be asked."""
        if not self.can_ask:
            return True
        sys.stdout.flush()
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def close(self) -> None:
        """Close what was opened."""
        if "service" in self.__dict__:
            self.service.close()


def yaml_lines(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield a mapping in block style; what is in lists stands in one line each."""
    for key, member in value.items():
        if isinstance(member, Mapping) and member and any(map(_is_large, member.values())):
            yield f"{indent}{_text(key)}:"
            yield from yaml_lines(member, f"{indent}  ")
        elif isinstance(member, list) and member:
            yield f"{indent}{_text(key)}:"
            yield from (f"{indent}  - {flow(item)}" for item in member)
        else:
            yield f"{indent}{_text(key)}: {flow(member)}"


def _is_large(value: Any) -> bool:
    return isinstance(value, Mapping | list)


def flow(value: Any) -> str:
    """Return a value in one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(key)}: {flow(member)}' for key, member in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, str):
        return _text(value)
    return yaml_float(value) if isinstance(value, float) else json.dumps(value)


def _text(text: str) -> str:
    return yaml_text(text, ascii_only=True)


def document_lines(quotas: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a document of quotas, entity by entity."""
    yield f"apiVersion: {API_VERSION}"
    yield "quotas:" if quotas else "quotas: []"
    for quota in quotas:
        yield f"  - entity: {flow(quota['entity'])}"
        yield f"    values: {flow(quota['values'])}"
