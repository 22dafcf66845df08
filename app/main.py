"""``kafka-quota-service serve | migrate | check | dev | openapi``."""

import argparse
import asyncio
import json
import logging
import os
import resource
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from app.command_line import CommandParser, complain, run_to_the_end

try:
    from app.settings import Settings, SettingsError
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is missing: pip install 'kafka-quota-service[server]'.")

PROGRAM: Final = "kafka-quota-service"
OPENAPI_FILE = Path("openapi/openapi.json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_to_the_end(PROGRAM, partial(_main, argv), unwritable=1)


def _main(argv: Sequence[str] | None) -> int:
    arguments = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    try:
        return int(arguments.run(arguments))
    except SettingsError as error:
        complain(str(error))
        return 2


def _parser() -> CommandParser:
    parser = CommandParser(
        prog=PROGRAM,
        description="Describe, alter and resolve Apache Kafka client quotas over REST.",
        epilog=(
            "Settings are environment variables QUOTAS_…, listed in docs/configuration.md; `dev` "
            "needs none."
        ),
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version(parser.prog)}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, line in (
        ("serve", _serve, "serve the HTTP interface until stopped"),
        ("migrate", _migrate, "create or update the tables of the audit log"),
        ("check", _check, "say whether it could serve: settings, Postgres, brokers, rights"),
        ("dev", _dev, "everything on this machine: broker, Postgres, service"),
        ("openapi", _openapi, "write the OpenAPI document"),
    ):
        commands.add_parser(name, help=line).set_defaults(run=run)
    commands.choices["dev"].add_argument(
        "--load", action="store_true", help="with producers and consumers over and under limits"
    )
    commands.choices["dev"].add_argument(
        "--clusters", type=int, default=1, choices=(1, 2, 3), help="so many brokers, each a cluster"
    )
    commands.choices["openapi"].add_argument(
        "--check", action="store_true", help=f"compare it with {OPENAPI_FILE} instead"
    )
    return parser


def _disable_core_dumps() -> None:
    """Let no crash of this process write its memory, which holds passwords, to a file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve(_: argparse.Namespace) -> int:
    from app.logs import configure_logs, end_logs  # noqa: PLC0415 - others start without it
    from app.server import serve  # noqa: PLC0415
    from app.startup_checks import check_dependencies, load_settings, warn  # noqa: PLC0415

    _disable_core_dumps()
    settings = load_settings(os.environ, listens=True)
    configure_logs(settings.log_format, settings.log_level)
    warn(settings)
    asyncio.run(check_dependencies(settings))
    try:
        return serve(settings)
    finally:
        end_logs()


def _migrate(_: argparse.Namespace) -> int:
    from app.postgres.migrate import MigrationError, migrate  # noqa: PLC0415

    _disable_core_dumps()
    settings = Settings.from_env({"QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "unused:0", **os.environ})
    try:
        sentences = migrate(settings.owner_database_url, settings.database_url.get_secret_value())
    except MigrationError as error:
        complain(f"migrate: {error}")
        return 1
    for sentence in sentences:
        print(f"migrate: {sentence}")
    return 0


def _check(_: argparse.Namespace) -> int:
    from app.check import examine  # noqa: PLC0415

    _disable_core_dumps()
    logging.getLogger("app").addHandler(logging.NullHandler())  # the lines have it all
    lines, is_good = asyncio.run(examine(os.environ))
    for line in lines:
        print(line)
    return 0 if is_good else 1


def _dev(arguments: argparse.Namespace) -> int:
    from app.localdev.dev import run_dev  # noqa: PLC0415
    from app.startup_checks import load_settings  # noqa: PLC0415

    return run_dev(os.environ, load_settings, load=arguments.load, clusters=arguments.clusters)


def _openapi(arguments: argparse.Namespace) -> int:
    from app.http.application import openapi_document  # noqa: PLC0415

    text = json.dumps(openapi_document(), indent=2, ensure_ascii=False) + "\n"
    if not arguments.check:
        OPENAPI_FILE.parent.mkdir(exist_ok=True)
        OPENAPI_FILE.write_text(text, encoding="utf-8")
        print(f"openapi: wrote {OPENAPI_FILE}")
        return 0
    if not OPENAPI_FILE.exists() or OPENAPI_FILE.read_text(encoding="utf-8") != text:
        complain(f"openapi: {OPENAPI_FILE} is out of date; run: make openapi")
        return 1
    print(f"openapi: {OPENAPI_FILE} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
