"""``export``: the quotas as a document that ``plan`` and ``apply`` take."""

from argparse import ArgumentParser
from pathlib import Path

from app.client.arguments import add_selection_options
from app.client.connection import document
from app.client.context import Context
from app.client.errors import DONE, UsageError
from app.client.selection import filters_of
from app.client.yaml_writing import API_VERSION


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    add_selection_options(parser)
    parser.add_argument("--out", metavar="FILE", help="write there instead of standard output")


def run(context: Context) -> int:
    """Write YAML by default; JSON and CSV with ``--output``."""
    parameters = filters_of(context)
    if context.output == "json":
        import json  # noqa: PLC0415

        quotas = document(context.service.get("/quotas", parameters), "quotas")["quotas"]
        written = {"apiVersion": API_VERSION, "quotas": quotas}
        content = (json.dumps(written, indent=2) + "\n").encode()
    else:
        accept = "text/csv" if context.output == "csv" else "application/yaml"
        content = context.service.get("/quotas", parameters, accept).content
    _write(context, content)
    return DONE


def _write(context: Context, content: bytes) -> None:
    out = context.option("out")
    if out is None:
        context.print_bytes(content)
        return
    try:
        Path(out).write_bytes(content)
    except OSError as error:
        raise UsageError(f"--out {out} cannot be written: {error}.") from error
