"""The command line: the flags of the proposal, and the subcommands."""

import argparse
import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NoReturn

from app.client.errors import UsageError
from app.client.kafka_configs import Refused, add_other_flags
from app.client.output import Context
from app.client.selection import add_owner_option, add_selection_options
from app.command_line import CommandParser, did_you_mean, redact, without_values
from app.domain.expiry import read_duration

_LONGEST_WAIT_S: Final = 86_400
_LONGEST_KEY: Final = 255


def seconds(text: str) -> float:
    """Read a time to wait, in seconds: above 0, and a day at most."""
    with suppress(ValueError):
        if 0 < float(text) <= _LONGEST_WAIT_S:
            return float(text)
    message = f"{text!r} is no number of seconds above 0 and up to {_LONGEST_WAIT_S}"
    raise argparse.ArgumentTypeError(message)


_ANYWHERE: Final = argparse.SUPPRESS
"""Options that may stand before or after a subcommand have no default: the later one wins."""

SUBCOMMANDS: Final = {
    "describe": ("describe", "the same as --describe"),
    "alter": ("alter", "the same as --alter"),
    "export": (
        "describe",
        "write the quotas as YAML, JSON or CSV that plan and apply take",
    ),
    "plan": ("plan", "show what would change for a document to hold; change nothing"),
    "apply": ("plan", "make a document hold, or nothing if the cluster moves meanwhile"),
    "import": ("imports", "turn what another tool keeps into a document"),
    "resolve": ("resolve", "tell what applies to each identity of a file; or as --resolve"),
    "lint": ("lint", "find quotas with no effect or a surprising one"),
    "advice": ("advice", "show which values to raise, to lower and to remove, and why"),
    "budgets": ("budgets", "show what the quotas of each budget add up to, and to what they may"),
    "audit": ("audit", "show who changed what, and when"),
    "revert": ("alter", "take an alteration back"),
    "temporary": ("temporary", "show what ends by itself, when, and what it returns to"),
    "keep": ("temporary", "keep what an alteration set for a time, for good or longer"),
    "show": ("alter", "show an alteration and its outcome"),
    "owners": ("describe", "show who applied which values by plans"),
    "clusters": ("clusters", "show the clusters of the service, and what you may do there"),
    "diff": ("clusters", "show what two clusters of the service have different"),
    "top": ("top", "show which clients are nearest to their limits now"),
    "whoami": ("about", "show who the service takes you for, and what you may do"),
    "completion": ("about", "write what completes these words in bash, zsh or fish"),
    "version": ("about", "the same as --version"),
}
"""Each with the module of its ``run_`` and ``add_…_options``, and its line of help."""

_OPERATIONS: Final = {
    "describe": ("describe", "print the entities that match, and their values"),
    "resolve": ("resolve", "print which quotas apply to a connection, and where each comes from"),
    "alter": ("alter", "set and remove quotas of one entity"),
}
"""The same of the flags."""

OUTPUTS: Final = ("text", "json", "yaml", "csv")

_EXAMPLES: Final = r"""
Examples:
  kafka-client-quotas --describe --names client-id=my-client
  kafka-client-quotas --describe --prefix user=team- --output csv
  kafka-client-quotas --resolve --names user=alice,client-id=etl --show-overridden
  kafka-client-quotas --alter --names client-id=etl --defaults user \
      --add producer_byte_rate=10MiB --delete consumer_byte_rate --validate-only
  kafka-client-quotas --alter --names user=alice --add producer_byte_rate=10MiB --for 4h
  kafka-client-quotas export > quotas.yaml
  kafka-client-quotas plan quotas.yaml --owner team-a --prune --scope user^=team-a-

The service is named by --server, KAFKA_CLIENT_QUOTAS_SERVER or a profile; so are token files,
with --token-file and KAFKA_CLIENT_QUOTAS_TOKEN_FILE.
Exit codes: 0 done, 1 refused (or plan has changes), 2 usage, 3 not authorized,
4 unknown outcome, 5 unreachable.
`kafka-client-quotas SUBCOMMAND --help` says what a subcommand takes.
"""


_UNKNOWN_WORD: Final = re.compile(r"(?:unrecognized arguments: |invalid choice: ')([^\s'=]+)")


class Parser(CommandParser):
    """Takes no abbreviations, which would become ambiguous when options are added."""

    subcommands: "Mapping[str, Parser] | None" = None
    typed: tuple[str, ...] = ()

    def __init__(self, **options: Any) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, formatter_class=formatter, **options)

    def error(self, message: str) -> NoReturn:
        """Refuse in one line, which names the subcommand and the word that was probably meant."""
        options = [*self._words()]
        unknown = [word for word in self.typed if word.startswith("--") and word not in options]
        # The value of an unknown option looks like a subcommand; the option is what is wrong.
        if unknown and "invalid choice" in message and "=" not in unknown[0]:
            message = f"unrecognized arguments: {unknown[0]}"
        word = _UNKNOWN_WORD.search(message)
        hint = did_you_mean(word[1], options) if word else ""
        subcommand = self.prog.partition(" ")[2]
        named = f"{subcommand}: " if subcommand else ""
        words = [word for word in self.words if word not in options]
        text = redact(without_values(message, words))
        raise UsageError(f"{named}{text}{f'.{hint}' if hint else ''}")

    def _words(self) -> Iterator[str]:
        yield from self._option_string_actions
        for name, parser in (self.subcommands or {}).items():
            yield name
            yield from parser._words()  # noqa: SLF001 - of this class

    @property
    def flags(self) -> Mapping[str, argparse.Action]:
        """What begins with two hyphens here, and is no counterpart that is refused."""
        return {
            flag: action
            for flag, action in self._option_string_actions.items()
            if flag.startswith("--") and not isinstance(action, Refused)
        }

    @property
    def positional(self) -> argparse.Action | None:
        """What is no option: the first, or null."""
        return next(iter(self._get_positional_actions()), None)


def parser(words: tuple[str, ...]) -> Parser:
    """Return the parser; only the subcommands that are among the words have their options."""
    main = Parser(
        prog="kafka-client-quotas",
        description="Describe, resolve and alter client quotas (KIP-546), through the service.",
        epilog=_EXAMPLES,
        usage="%(prog)s (--describe | --resolve | --alter | SUBCOMMAND) [options]",
    )
    main.typed = words
    main.add_argument(
        "--version",
        action="version",
        version=f"{main.prog} {version_of_package() if '--version' in words else ''}",
        help="print the version and exit",
    )
    _add_operations(main)
    add_selection_options(main)
    add_overridden_option(main.add_argument_group("describe and resolve"))
    add_owner_option(main.add_argument_group("describe"))
    add_changes(main)
    add_other_flags(main)
    add_common_options(main)
    add_cluster_option(main)
    subcommands = main.add_subparsers(
        dest="subcommand", metavar="SUBCOMMAND", title="subcommands", prog="kafka-client-quotas"
    )
    for name, (module, line) in SUBCOMMANDS.items():
        sub = subcommands.add_parser(
            name,
            help=line,
            description=f"{line[0].upper()}{line[1:]}.",
            argument_default=_ANYWHERE,
            epilog=_COMMON,
        )
        if name in words:
            add_options = getattr(_module(module), f"add_{name}_options", None)
            if add_options is not None:
                add_options(sub)
            add_common_options(sub, listed=False)
            if name not in _OF_TWO_CLUSTERS:
                add_cluster_option(sub, listed=False)
    main.subcommands = subcommands.choices
    return main


def version_of_package() -> str:
    """Return the version that is installed."""
    from importlib.metadata import version  # noqa: PLC0415 - takes a while to import

    return version("kafka-quota-service")


def function_of(options: argparse.Namespace) -> Callable[[Context], int]:
    """Return what runs the command; its module is imported only now."""
    flag, name = options.operation, options.subcommand
    if flag is not None and name is not None:
        raise UsageError(f"--{flag} and {name} are two commands.")
    if flag is None and name is None:
        raise UsageError(
            "Say what to do: --describe, --resolve, --alter, or a subcommand; see --help."
        )
    module, _ = SUBCOMMANDS[name] if flag is None else _OPERATIONS[flag]
    function = "run_resolve_identity" if flag == "resolve" else f"run_{flag or name}"
    run: Callable[[Context], int] = getattr(_module(module), function)
    return run


def _module(name: str) -> ModuleType:
    return import_module(f"app.client.commands.{name}")


def add_overridden_option(to: Any) -> None:
    """Add the option that prints what loses, too."""
    to.add_argument(
        "--show-overridden",
        action="store_true",
        help="also the less specific values that lose, each with a leading *",
    )


def _add_operations(main: Parser) -> None:
    group = main.add_argument_group("operations")
    exclusive = group.add_mutually_exclusive_group()
    for name, (_, line) in _OPERATIONS.items():
        exclusive.add_argument(
            f"--{name}", dest="operation", action="store_const", const=name, help=line
        )


def add_changes(to: argparse.ArgumentParser) -> None:
    """Add what says how an entity is altered."""
    group = to.add_argument_group("alter")
    group.add_argument(
        "--add",
        "--add-config",
        action="append",
        metavar="KEY=VALUE,…",
        help="set; 10MiB, 10MB and 50%% are read",
    )
    group.add_argument(
        "--add-config-file", action="append", metavar="FILE", help="set what its lines say"
    )
    group.add_argument(
        "--delete", "--delete-config", action="append", metavar="KEY,…", help="remove"
    )
    add_change_options(group)
    add_consent_option(group)


def add_consent_option(group: Any) -> None:
    """Add what says that a change is meant."""
    group.add_argument(
        "--yes", action="store_true", help="do not ask; needed in a script to lower a lot"
    )


def add_change_options(group: Any, *, validate: bool = True) -> None:
    """Add what every change takes."""
    if validate:
        group.add_argument(
            "--validate-only", action="store_true", help="let service and broker check; do nothing"
        )
    group.add_argument("--reason", metavar="TEXT", help="why; recorded in the audit log")
    add_end_options(group)
    group.add_argument(
        "--idempotency-key",
        type=_idempotency_key,
        metavar="KEY",
        help="of an earlier try, which this one repeats",
    )


def _idempotency_key(text: str) -> str:
    if text and text.isascii() and text.isprintable() and len(text) <= _LONGEST_KEY:
        return text
    message = f"give 1 to {_LONGEST_KEY} printable ASCII characters"
    raise argparse.ArgumentTypeError(message)


def add_end_options(group: Any) -> None:
    """Add until when a change is to hold."""
    end = group.add_mutually_exclusive_group()
    end.add_argument(
        "--for",
        dest="expires_in",
        type=_duration,
        metavar="DURATION",
        help="as in 4h, 90s, 30m or 2d; then the values return to what they were",
    )
    end.add_argument(
        "--until",
        dest="expires_at",
        type=time_of_text,
        metavar="TIME",
        help="the same, as in 2026-11-28T06:00Z",
    )


def end_of(context: Context) -> dict[str, Any]:
    """Return the members of a body that say until when; none where it is for good."""
    return context.pick("expires_in", "expires_at")


def _duration(text: str) -> str:
    try:
        read_duration(text)
    except ValueError as error:
        message = f"{text!r} is {error}"
        raise argparse.ArgumentTypeError(message) from None
    return text


def time_of_text(text: str) -> str:
    """Return a time as the service reads it; one without an offset is of UTC."""
    try:
        at = dt.datetime.fromisoformat(text)
        at = at.astimezone(dt.UTC) if at.tzinfo else at.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError):
        message = f"{text!r} is no time such as 2026-11-28 or 2026-11-28T06:00Z"
        raise argparse.ArgumentTypeError(message) from None
    return utc_text(at)


def utc_text(at: dt.datetime) -> str:
    """Return a time as the service reads it."""
    return f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"


_COMMON: Final = """\
--server, --token-file, --output and what else every command takes: kafka-client-quotas --help
"""


def add_common_options(to: argparse.ArgumentParser, *, listed: bool = True) -> None:
    """Add what may stand before or after a subcommand, in its help or not."""
    group = to.add_argument_group("service")
    for flag, metavar, line in (
        ("--server", "URL", "the service (default: http://localhost:8080)"),
        ("--token-file", "FILE", "holds a bearer token"),
        ("--user", "NAME", "log in with a user; asks for the password"),
        ("--password-file", "FILE", "holds the password of --user"),
        ("--cert", "FILE", "PEM file of a client certificate"),
        ("--key", "FILE", "PEM file of its key, if it is another file"),
        ("--cacert", "FILE", "PEM file of the authorities to trust"),
        ("--profile", "NAME", "of ~/.config/kafka-client-quotas/config.toml"),
    ):
        group.add_argument(flag, metavar=metavar, help=_listed(line, listed), default=_ANYWHERE)
    group.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        default=_ANYWHERE,
        help=_listed("wait so long for an answer", listed),
    )
    output = to.add_argument_group("output")
    output.add_argument(
        "--output",
        choices=OUTPUTS,
        default=_ANYWHERE,
        help=_listed("format (default: text)", listed),
    )
    output.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default=_ANYWHERE,
        help=_listed("colours (default: on a terminal, unless NO_COLOR is set)", listed),
    )


_OF_TWO_CLUSTERS: Final = ("diff",)


def add_cluster_option(to: argparse.ArgumentParser, *, listed: bool = True) -> None:
    """Add which cluster of the service is meant, in the help or not."""
    line = "of a service that has several (default: QUOTAS_CLUSTER, else the service's default)"
    to.add_argument("--cluster", metavar="NAME", default=_ANYWHERE, help=_listed(line, listed))


def _listed(line: str, listed: bool) -> str:  # noqa: FBT001 - beside its line
    return line if listed else argparse.SUPPRESS
