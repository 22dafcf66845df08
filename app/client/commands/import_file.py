"""``import FILE``: a document from what another tool keeps."""

from argparse import ArgumentParser
from typing import Final

from app.client.context import Context
from app.client.errors import DONE, REFUSED, UsageError
from app.client.imports import kafka_configs, rpk, strimzi, terraform
from app.client.imports.collected import Collected
from app.client.nodes import parse, read_file
from app.client.yaml_writing import API_VERSION, document_lines

FORMATS: Final = ("kafka-configs", "rpk", "strimzi", "terraform")
_TREES: Final = {"rpk": rpk, "strimzi": strimzi, "terraform": terraform}


def add_arguments(parser: ArgumentParser) -> None:
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


def run(context: Context) -> int:
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

    Raises:
        UsageError: It cannot be read, or has the shape of none.
    """
    text, collected = read_file(file), Collected(file)
    if source == "kafka-configs" or (source is None and kafka_configs.recognised(text)):
        kafka_configs.read(text, collected)
        return collected
    nodes = parse(file, text)
    for name, tool in _TREES.items():
        if source == name or (source is None and tool.recognised(nodes)):
            tool.read(nodes, collected)
            return collected
    raise UsageError(f"{file} looks like none of {', '.join(FORMATS)}; name one with --from.")
