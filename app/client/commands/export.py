"""``export`` and ``import FILE``: a document, from the service or from another tool's file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Final

from app.client import imports
from app.client.arguments import add_selection_options, filters_of
from app.client.documents import API_VERSION, document_lines, parse, read_file
from app.client.errors import DONE, REFUSED, UsageError
from app.client.http import document
from app.client.imports import Collected
from app.client.output import Context


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


FORMATS: Final = ("kafka-configs", "rpk", "strimzi", "terraform")
_TREES: Final = {
    "rpk": (imports.is_rpk, imports.read_rpk),
    "strimzi": (imports.is_strimzi, imports.read_strimzi),
    "terraform": (imports.is_terraform, imports.read_terraform),
}


def add_import_arguments(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="kafka-configs --describe, rpk cluster quotas, KafkaUser manifests or a Terraform "
        "state; - reads stdin",
    )
    parser.add_argument(
        "--from", dest="source", choices=FORMATS, help="its format (default: as it looks)"
    )
    parser.add_argument(
        "--complete", action="store_true", help="exit code 1 where something is not carried over"
    )


def run_import(context: Context) -> int:
    """Write the document to standard output, and what was lost to standard error."""
    context.refuse_output("csv")
    collected = read_foreign(context.options.file, context.option("source"))
    quotas = collected.quotas()
    if context.output == "json":
        context.print_json({"apiVersion": API_VERSION, "quotas": quotas})
    else:
        context.print(document_lines(quotas))
    if collected.lost:
        context.note(f"Not carried over ({len(collected.lost)}):")
    for sentence in collected.lost:
        context.note(f"  {sentence}")
    return REFUSED if collected.lost and context.option("complete") else DONE


def read_foreign(file: str, source: str | None) -> Collected:
    """Read a file of another tool.

    Args:
        file: Its name; ``-`` is standard input.
        source: The tool; null: the one whose shape the file has.
    """
    text, collected = read_file(file), Collected(file)
    if source == "kafka-configs" or (source is None and imports.is_kafka_configs(text)):
        imports.read_kafka_configs(text, collected)
        return collected
    nodes = parse(file, text)
    for name, (recognised, read) in _TREES.items():
        if source == name or (source is None and recognised(nodes)):
            read(nodes, collected)
            return collected
    raise UsageError(f"{file} looks like none of {', '.join(FORMATS)}; name one with --from.")
