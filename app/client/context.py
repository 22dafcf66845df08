"""What every command is given: its options, the service, the streams."""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from app.client.configuration import configuration
from app.client.entities import visible
from app.client.errors import UsageError
from app.client.terminal import Style

_DEFAULT_TIMEOUT_S: Final = 90.0
"""Longer than the service waits for anything (``wait_ms`` is at most a minute)."""


@dataclass
class Context:
    """One run of the command."""

    options: Namespace

    @cached_property
    def service(self) -> Any:
        """The service, an ``app.client.connection.Connection``; made where it is needed."""
        from app.client.connection import Connection  # noqa: PLC0415 - takes a while to import

        timeout_s = getattr(self.options, "timeout", None) or _DEFAULT_TIMEOUT_S
        return Connection(configuration(self.options, os.environ), timeout_s)

    @property
    def output(self) -> str:
        """The format that was asked for; ``text`` by default."""
        return str(getattr(self.options, "output", None) or "text")

    def refuse_output(self, *formats: str) -> None:
        """Refuse formats that a command does not write.

        Raises:
            UsageError: One of them was asked for.
        """
        if self.output in formats:
            raise UsageError(f"--output {self.output} is not written here.")

    @cached_property
    def style(self) -> Style:
        """The colours of standard output."""
        return Style.of(sys.stdout, getattr(self.options, "color", None) or "auto")

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option, or the default where it was not given."""
        value = getattr(self.options, name, None)
        return default if value is None else value

    def print(self, lines: Iterable[str]) -> None:
        """Write lines to standard output."""
        for line in lines:
            sys.stdout.write(f"{line}\n")

    def print_json(self, value: Any) -> None:
        """Write JSON in ASCII, so that no name acts on a terminal; the values are exact."""
        sys.stdout.write(json.dumps(value, indent=2) + "\n")

    def print_bytes(self, content: bytes) -> None:
        """Write an answer as it came; on a terminal without what would act on it."""
        if sys.stdout.isatty():
            self.print(visible(line) for line in content.decode().splitlines())
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()

    def note(self, text: str) -> None:
        """Tell a person something on standard error."""
        sys.stdout.flush()
        sys.stderr.write(f"{visible(text)}\n")

    def close(self) -> None:
        """Close what was opened."""
        if "service" in self.__dict__:
            self.service.close()
