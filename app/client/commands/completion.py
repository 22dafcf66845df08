"""``completion bash|zsh|fish``: what the Tab key offers."""

import argparse
from collections.abc import Iterator

from app.client.arguments import SUBCOMMANDS, parser
from app.client.errors import DONE
from app.client.output import Context
from app.domain.entities import EntityType
from app.domain.quota_keys import QuotaKey

_PROGRAM = "kafka-client-quotas"

_INSTALL = {
    "bash": f'eval "$({_PROGRAM} completion bash)"',
    "zsh": f'eval "$({_PROGRAM} completion zsh)"',
    "fish": f"{_PROGRAM} completion fish | source",
}


def add_arguments(to: argparse.ArgumentParser) -> None:
    """Add the options of the subcommand."""
    to.add_argument("shell", choices=tuple(_INSTALL), help="the shell to write for")


def run(context: Context) -> int:
    """Write a script for the shell; its first line says how to use it."""
    shell = context.options.shell
    context.print([f"# Put this into the shell's start-up file: {_INSTALL[shell]}"])
    context.print(_fish() if shell == "fish" else _bash(zsh=shell == "zsh"))
    return DONE


def _options() -> dict[str, list[argparse.Action]]:
    """Return the options of the command itself, under ``""``, and of each subcommand."""
    main = parser(tuple(SUBCOMMANDS))
    actions = main._actions  # noqa: SLF001 - argparse lists them nowhere else
    (subcommands,) = [
        subparser.choices for subparser in actions if isinstance(subparser.choices, dict)
    ]
    return {
        "": _visible_actions(main),
        **{name: _visible_actions(subparser) for name, subparser in subcommands.items()},
    }


def _visible_actions(subparser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in subparser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001


def _flags(actions: list[argparse.Action]) -> str:
    return " ".join(flag for action in actions for flag in action.option_strings)


def _words(actions: list[argparse.Action]) -> Iterator[tuple[str, str]]:
    for action in actions:
        if action.choices and not isinstance(action.choices, dict):
            yield " | ".join(action.option_strings), " ".join(map(str, action.choices))


_KEYS = " ".join(QuotaKey)
_TYPES = " ".join(EntityType)
_FILES = "--token-file | --password-file | --cert | --key | --cacert | --out | --what-if"


def _bash(*, zsh: bool) -> Iterator[str]:
    options = _options()
    if zsh:
        yield "autoload -Uz bashcompinit && bashcompinit"
    yield "_kafka_client_quotas() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" sub="" one'
    yield "  local -i at"
    yield "  for ((at = 1; at < COMP_CWORD; at++)); do"
    yield '    one="${COMP_WORDS[at]}"'
    yield f'    case "$one" in {" | ".join(SUBCOMMANDS)}) sub="$one"; break ;; esac'
    yield "  done"
    yield '  case "$before" in'
    yield f'    {_FILES}) COMPREPLY=($(compgen -f -- "$word")); return ;;'
    yield f'    --delete) COMPREPLY=($(compgen -W "{_KEYS}" -- "$word")); return ;;'
    yield f'    --add) COMPREPLY=($(compgen -S = -W "{_KEYS}" -- "$word")); return ;;'
    yield f'    --defaults) COMPREPLY=($(compgen -W "{_TYPES}" -- "$word")); return ;;'
    yield "    --names | --name | --prefix)"
    yield f'      COMPREPLY=($(compgen -S = -W "{_TYPES}" -- "$word")); return ;;'
    offered = dict(pair for actions in options.values() for pair in _words(actions) if pair[0])
    for flags, words in offered.items():
        yield f'    {flags}) COMPREPLY=($(compgen -W "{words}" -- "$word")); return ;;'
    yield "  esac"
    yield '  case "$sub" in'
    for name, actions in options.items():
        if name:
            yield f'    {name}) one="{_flags(actions)}" ;;'
    yield f'    *) one="{_flags(options[""])} {" ".join(SUBCOMMANDS)}" ;;'
    yield "  esac"
    yield f'  [ "$sub" = completion ] && one="{" ".join(_INSTALL)}"'
    yield '  COMPREPLY=($(compgen -W "$one" -- "$word"))'
    yield '  case "$sub" in completion | "") ;; *)'
    yield '    [[ "$word" != -* ]] && COMPREPLY=($(compgen -f -- "$word")) ;;'
    yield "  esac"
    yield "  return 0"
    yield "}"
    yield f"complete -F _kafka_client_quotas {_PROGRAM}"


def _fish() -> Iterator[str]:
    options = _options()
    yield f"complete -c {_PROGRAM} -n __fish_use_subcommand -f"
    for name, line in SUBCOMMANDS.items():
        yield f"complete -c {_PROGRAM} -n __fish_use_subcommand -a {name} -d {_quoted(line)}"
    for name, actions in options.items():
        when = f"'__fish_seen_subcommand_from {name}'" if name else "__fish_use_subcommand"
        for action in actions:
            yield from _fish_option(when, action)
    shells = " ".join(_INSTALL)
    yield f"complete -c {_PROGRAM} -n '__fish_seen_subcommand_from completion' -f -a '{shells}'"


def _fish_option(when: str, action: argparse.Action) -> Iterator[str]:
    for flag in action.option_strings:
        if not flag.startswith("--"):
            continue
        takes = "" if action.nargs == 0 else " -r"
        offered = f" -f -a '{' '.join(map(str, action.choices))}'" if action.choices else ""
        line = _quoted((action.help or "").replace("%%", "%"))
        yield f"complete -c {_PROGRAM} -n {when} -l {flag[2:]}{takes}{offered} -d {line}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
