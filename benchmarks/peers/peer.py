"""A client to be measured beside the service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


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
