"""The flags of ``kafka-configs``: each is taken, or its counterpart is named.

Source: ``ConfigCommand.ConfigCommandOptions`` of Kafka 4.3.1.
"""

import argparse
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from app.client.entities import read_changes
from app.client.errors import UsageError, reason
from app.client.output import Context
from app.command_line import did_you_mean

ANY: Final = ""
"""Stands for the name of an ``--entity-type`` without one; an empty name is the default there."""

_TYPES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
_SHORT: Final = {"--client": "client-id", "--client-id": "client-id", "--ip": "ip"}
_WITHOUT_QUOTAS: Final = ("--topic", "--broker", "--broker-logger", "--group", "--client-metrics")
_WITHOUT_QUOTAS_OR_NAME: Final = ("--broker-defaults",)
_OF_BROKERS: Final = (
    "--bootstrap-server",
    "--bootstrap-controller",
    "--command-config",
    "--zookeeper",
    "--zk-tls-config-file",
)
_ASK_THE_SERVICE: Final = (
    "is for brokers; this command asks the quota service: give --server URL and --token-file FILE."
)
_NO_QUOTAS: Final = "is for configurations without quotas, which kafka-configs itself alters."

Pair = tuple[str, str | None]
"""An entity type and a name, null for the default."""


class Refused(argparse.Action):
    """Refuses a flag, and says what to write instead."""

    def __call__(self, *_: object) -> None:
        """Refuse."""
        raise UsageError(f"{self.option_strings[0]} {self.const}")


def add_entity_flags(to: argparse.ArgumentParser) -> None:
    """Add the flags that name entities."""
    group = to.add_argument_group("entities as kafka-configs names them")
    for flag, read, line in (
        ("--entity-type", _entity_type, "users, clients or ips; repeats"),
        ("--entity-name", _entity_name, "the name of the type at the same position"),
    ):
        group.add_argument(
            flag, dest="entity_words", action="append", type=read, metavar="TEXT", help=line
        )
    group.add_argument(
        "--entity-default",
        dest="entity_words",
        action="append_const",
        const=("name", None),
        help="the default instead of a name",
    )
    for flag, kind in _SHORT.items():
        line = f"the {kind} of that name; --user logs in here, so write --names user=NAME"
        pair_of = _reader_of(kind)
        group.add_argument(
            flag, dest="entity_pairs", action="append", type=pair_of, metavar="NAME", help=line
        )
    for kind in ("user", "client", "ip"):
        group.add_argument(
            f"--{kind}-defaults",
            dest="entity_pairs",
            action="append_const",
            const=(_TYPES[f"{kind}s"], None),
            help=f"the default {kind}",
        )


def add_other_flags(to: argparse.ArgumentParser) -> None:
    """Add what has no effect here, and what is refused with its counterpart."""
    for flag in ("--all", "--force"):
        to.add_argument(flag, dest="of_no_effect", action="store_true", help=argparse.SUPPRESS)
    for flags, nargs, sentence in (
        (_OF_BROKERS, None, _ASK_THE_SERVICE),
        (_WITHOUT_QUOTAS, None, _NO_QUOTAS),
        (_WITHOUT_QUOTAS_OR_NAME, 0, _NO_QUOTAS),
    ):
        for flag in flags:
            to.add_argument(
                flag, action=Refused, nargs=nargs, const=sentence, help=argparse.SUPPRESS
            )


def pairs_of(context: Context) -> list[Pair]:
    """Return type and name of the flags that name entities; names go by position.

    A type without a name has ``ANY``.
    """
    words = context.option("entity_words", [])
    types, names = ([text for word, text in words if word == kind] for kind in ("type", "name"))
    if len(names) > len(types):
        raise UsageError("--entity-name and --entity-default need an --entity-type each.")
    pairs = [*zip_longest(types, names, fillvalue=ANY), *context.option("entity_pairs", [])]
    if pairs and context.option("user") and not context.option("password_file"):
        raise UsageError(
            "--user logs in here, with --password-file FILE; for the user of a quota write "
            "--names user=NAME."
        )
    return pairs


def read_config_files(files: Sequence[str]) -> list[dict[str, Any]]:
    """Return the ops of files of ``KEY=VALUE``, a line each."""
    try:
        texts = [Path(file).read_text(encoding="utf-8") for file in files]
    except (OSError, ValueError) as error:
        message = f"The file of --add-config-file cannot be read: {reason(error)}."
        raise UsageError(message) from error
    lines = (line.strip() for text in texts for line in text.splitlines())
    return read_changes([line for line in lines if line and line[0] not in "#!"], [])


def _entity_type(text: str) -> tuple[str, str]:
    if text in _TYPES:
        return ("type", _TYPES[text])
    message = f"{text!r} has no quotas; {', '.join(_TYPES)} have.{did_you_mean(text, _TYPES)}"
    raise argparse.ArgumentTypeError(message)


def _entity_name(text: str) -> tuple[str, str | None]:
    return ("name", text or None)


def _reader_of(kind: str) -> Callable[[str], Pair]:
    return lambda text: (kind, text or None)
