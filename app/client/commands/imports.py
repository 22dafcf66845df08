"""``import FILE``: a document from a file of another tool."""

from argparse import ArgumentParser

from app.client.errors import DONE, REFUSED
from app.client.imports.formats import FORMATS, read_foreign
from app.client.output import Context, document_lines
from app.documents import API_VERSION


def add_import_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="what kafka-configs or rpk print, manifests of Strimzi, Jikkou, Aiven or ns4kafka, "
        "Terraform's states, plans and main.tf, playbooks of Ansible, topologies of Julie, lists "
        "of kafka-ui or Aiven; - reads stdin",
    )
    parser.add_argument(
        "--from", dest="source", choices=FORMATS, help="its format (default: as it looks)"
    )
    parser.add_argument(
        "--complete", action="store_true", help="exit code 1 where a quota is not carried over"
    )


def run_import(context: Context) -> int:
    """Write the document to standard output, and what was lost to standard error.

    Returns:
        1 where quotas were lost, with ``--complete`` or because nothing else is left; else 0.
    """
    context.refuse_output("csv")
    collection = read_foreign(context.options.file, context.option("source"))
    quotas = collection.quotas()
    if context.output == "json":
        context.print_json({"apiVersion": API_VERSION, "quotas": quotas})
    else:
        context.print(document_lines(quotas))
    for line in collection.summary():
        context.note(line)
    is_failed = collection.lost and (context.option("complete") or not quotas)
    return REFUSED if is_failed else DONE
