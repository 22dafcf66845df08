"""``whoami``, ``version`` and ``completion``: the caller, and the command itself."""

import argparse
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from app.client.arguments import SUBCOMMANDS, Parser, version_of_package
from app.client.arguments import parser as whole_parser
from app.client.commands.clusters import clusters_of
from app.client.errors import DONE
from app.client.http import document
from app.client.output import PROGRAM, Context, yaml_lines
from app.client.problems import ServiceError
from app.domain.entities import visible

_TAKES_A_FILE: Final = "FILE"
"""The metavar of what is completed with files."""


def add_whoami_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("--all", action="store_true", help="on every cluster of the service")


def run_whoami(context: Context) -> int:
    """Print the caller as the service sees it, with its permissions."""
    context.refuse_output("csv")
    if context.option("all"):
        return _whoami_on_all(context)
    me = _me(context.service)
    context.write(me, _me_lines(me))
    return DONE


def _me(service: Any) -> Any:
    return document(service.get("/me"), "principal", "permissions", "policy")


def _whoami_on_all(context: Context) -> int:
    """Print the caller on each cluster; of one that does not answer why."""
    rows = []
    for cluster in clusters_of(context)[1]:
        row = {"name": cluster["name"], "reason": cluster["reason"], "me": None}
        if cluster["ready"]:
            try:
                row["me"] = _me(context.service.of_cluster(cluster["name"]))
            except ServiceError as error:
                row["reason"] = str(error.problem.get("detail"))
        rows.append(row)
    context.write({"clusters": rows}, _lines_of_all(rows))
    return DONE


def _lines_of_all(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield f"{visible(row['name'])}:"
        if row["me"] is None:
            yield f"  unknown: {visible(row['reason'] or 'it does not answer')}"
        else:
            yield from (f"  {line}" for line in _me_lines(row["me"]))


def _me_lines(me: Mapping[str, Any]) -> Iterator[str]:
    yield visible(me["principal"])
    names = ("cluster_id", "authentication", "client_address")
    yield from (f"  {name}: {visible(str(me[name]))}" for name in names)
    for verb, wanted in (("may", True), ("may not", False)):
        permissions = [name for name, allowed in me["permissions"].items() if allowed is wanted]
        if permissions:
            yield f"  {verb}: {', '.join(permissions)}"
    if me["policy"]:
        yield from yaml_lines({"policy": me["policy"]}, "  ")
    elif me["policy"] is not None:
        yield "  the policy lets you change nothing"


def run_version(context: Context) -> int:
    """Print the version."""
    version = version_of_package()
    context.write({"version": version}, [f"{PROGRAM} {version}"])
    return DONE


def add_completion_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("shell", choices=tuple(_SHELLS), metavar="SHELL", help=", ".join(_SHELLS))


def run_completion(context: Context) -> int:
    """Print the script of a shell; it names what this release takes."""
    main = whole_parser(tuple(SUBCOMMANDS))
    context.print(_SHELLS[context.options.shell](main))
    return DONE


def _parsers(main: Parser) -> Mapping[str, Parser]:
    """Return the parser of each subcommand; that of none is the empty word's."""
    return {"": main, **(main.subcommands or {})}


def _bash(main: Parser) -> Iterator[str]:
    yield f'# {PROGRAM} in bash: eval "$({PROGRAM} completion bash)"'
    yield "_kafka_client_quotas() {"
    yield "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}"
    yield "  local sub= each words"
    yield "  COMPREPLY=()"
    yield '  for each in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield f"    case $each in {'|'.join(SUBCOMMANDS)}) sub=$each; break;; esac"
    yield "  done"
    yield "  case $before in"
    for flag, action in _all_flags(main).items():
        if action.choices:
            choices = " ".join(map(str, action.choices))
            yield f'    {flag}) COMPREPLY=($(compgen -W "{choices}" -- "$word")); return;;'
    files = [flag for flag, action in _all_flags(main).items() if action.metavar == _TAKES_A_FILE]
    yield f'    {"|".join(files)}) COMPREPLY=($(compgen -f -- "$word")); return;;'
    yield "  esac"
    yield "  case $sub in"
    for name, parser in _parsers(main).items():
        words = [*_choices(parser), *parser.flags]
        yield f'    {name or chr(34) * 2}) words="{" ".join(words)}";;'
    yield "  esac"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield f"  case $sub in {'|'.join(_with_files(main))})"
    yield '    [[ $word == -* ]] || COMPREPLY+=($(compgen -f -- "$word"));;'
    yield "  esac"
    yield "}"
    yield f"complete -o filenames -F _kafka_client_quotas {PROGRAM}"


def _zsh(main: Parser) -> Iterator[str]:
    yield f'# {PROGRAM} in zsh: eval "$({PROGRAM} completion zsh)"'
    yield "autoload -U +X compinit && compinit"
    yield "autoload -U +X bashcompinit && bashcompinit"
    yield from list(_bash(main))[1:]


def _fish(main: Parser) -> Iterator[str]:
    yield f"# {PROGRAM} in fish: {PROGRAM} completion fish | source"
    yield f"complete -c {PROGRAM} -f"
    for name, (_, line) in SUBCOMMANDS.items():
        yield f"complete -c {PROGRAM} -n __fish_use_subcommand -a {name} -d {_quoted(line)}"
    for name, parser in _parsers(main).items():
        where = f"'__fish_seen_subcommand_from {name}'" if name else "__fish_use_subcommand"
        complete = f"complete -c {PROGRAM} -n {where}"
        if parser.positional is not None and parser.positional.metavar == _TAKES_A_FILE:
            yield f"{complete} -F"
        elif name and _choices(parser):
            yield f"{complete} -a {_quoted(' '.join(_choices(parser)))}"
        for flag, action in parser.flags.items():
            yield f"{complete} -l {flag[2:]}{_fish_value(action)}{_fish_help(action)}"


def _fish_value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices:
        return f" -x -a {_quoted(' '.join(map(str, action.choices)))}"
    return " -r -F" if action.metavar == _TAKES_A_FILE else " -x"


def _fish_help(action: argparse.Action) -> str:
    is_listed = action.help and action.help != argparse.SUPPRESS
    return f" -d {_quoted(action.help.replace('%%', '%'))}" if is_listed and action.help else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _all_flags(main: Parser) -> Mapping[str, argparse.Action]:
    return {
        flag: action for parser in _parsers(main).values() for flag, action in parser.flags.items()
    }


def _choices(parser: Parser) -> list[str]:
    positional = parser.positional
    return [] if positional is None else list(map(str, positional.choices or ()))


def _with_files(main: Parser) -> list[str]:
    return [
        name
        for name, parser in _parsers(main).items()
        if parser.positional is not None and parser.positional.metavar == _TAKES_A_FILE
    ]


_SHELLS: Final[Mapping[str, Callable[[Parser], Iterator[str]]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
