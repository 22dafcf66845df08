"""``completion bash|zsh|fish``: what the Tab key offers.

The shell's script asks the command itself, by ``completion words``. The word at the cursor is in
``COMP_WORD``; those before it are in ``COMP_WORDS``, one a line.
"""

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from app.client.arguments import SUBCOMMANDS, parser
from app.client.errors import DONE
from app.client.output import Context
from app.domain.entities import EntityType
from app.domain.quota_keys import QuotaKey

_WORDS: Final = "words"

_BASH: Final = r"""_kafka_client_quotas() {
  local IFS=$'\n'
  COMPREPLY=($(COMP_WORD="${COMP_WORDS[COMP_CWORD]}" \
    COMP_WORDS="${COMP_WORDS[*]:1:COMP_CWORD-1}" kafka-client-quotas completion words))
  case "${COMPREPLY[0]-}" in *=) compopt -o nospace 2>/dev/null ;; esac
  return 0
}
complete -o default -F _kafka_client_quotas kafka-client-quotas"""

_FISH: Final = """function _kafka_client_quotas
  set -lx COMP_WORD (commandline -ct)
  set -lx COMP_WORDS (string join \\n -- (commandline -cop)[2..-1] | string collect)
  kafka-client-quotas completion words
end
complete -c kafka-client-quotas -a '(_kafka_client_quotas)'"""

_SCRIPTS: Final = {
    "bash": ('eval "$(kafka-client-quotas completion bash)"', _BASH),
    "zsh": (
        'eval "$(kafka-client-quotas completion zsh)"',
        f"autoload -Uz bashcompinit && bashcompinit\n{_BASH}",
    ),
    "fish": ("kafka-client-quotas completion fish | source", _FISH),
}
"""Of each shell what to put into its start-up file, and what that runs."""

_VALUES: Final[Mapping[str, Iterable[str]]] = {
    **dict.fromkeys(("--add", "--add-config"), tuple(f"{key}=" for key in QuotaKey)),
    **dict.fromkeys(("--delete", "--delete-config"), QuotaKey),
    **dict.fromkeys(("--names", "--name", "--prefix"), tuple(f"{kind}=" for kind in EntityType)),
    "--defaults": EntityType,
}


def add_arguments(to: argparse.ArgumentParser) -> None:
    """Add the options of the subcommand."""
    shells = "{" + ",".join(_SCRIPTS) + "}"
    to.add_argument(
        "shell", choices=(*_SCRIPTS, _WORDS), metavar=shells, help="the shell to write for"
    )


def run(context: Context) -> int:
    """Write a script for the shell; its first line says how to use it."""
    shell = context.options.shell
    if shell == _WORDS:
        context.print(offered(_words("COMP_WORDS"), "".join(_words("COMP_WORD"))))
        return DONE
    use, script = _SCRIPTS[shell]
    context.print([f"# Put this into the shell's start-up file: {use}", script])
    return DONE


def _words(variable: str) -> list[str]:
    return os.environ.get(variable, "").splitlines()


def offered(before: list[str], begun: str) -> Iterator[str]:
    """Yield what a word may become after others; nothing where the shell is to offer files."""
    subcommand = next((word for word in before if word in SUBCOMMANDS), None)
    main = parser(() if subcommand is None else (subcommand,))
    of = main if subcommand is None or main.subcommands is None else main.subcommands[subcommand]
    options = of._option_string_actions  # noqa: SLF001 - argparse lists them nowhere else
    taken = options.get(before[-1]) if before else None
    if taken is not None and taken.nargs != 0:
        found: Iterable[str] = _VALUES.get(before[-1]) or taken.choices or ()
    elif subcommand is None:
        found = (*_visible_flags(options), *SUBCOMMANDS)
    elif subcommand == "completion":
        found = _SCRIPTS
    else:
        found = _visible_flags(options)
    return (word for word in found if word.startswith(begun))


def _visible_flags(options: Mapping[str, argparse.Action]) -> list[str]:
    return [flag for flag, action in options.items() if action.help != argparse.SUPPRESS]
