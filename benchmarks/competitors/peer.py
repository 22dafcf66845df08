"""A client to be measured beside the service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

CURL: Final = "curl"


@dataclass(frozen=True)
class Peer:
    """A program that does the jobs of its standard input.

    Attributes:
        name: For the tables.
        version: Of the library and of what it runs on.
        command: The bootstrap servers follow.
        environ: All of its environment.
    """

    name: str
    version: str
    command: Sequence[str]
    environ: Mapping[str, str]


@dataclass(frozen=True)
class Peers:
    """Those that can run here, and why others cannot."""

    present: Sequence[Peer] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_curl(self) -> bool:
        """Whether the service can be called from a shell as its users do."""
        return CURL not in self.left_out
