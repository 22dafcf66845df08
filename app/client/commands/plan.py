"""``plan FILE``: show what would change for a document to hold."""

from argparse import ArgumentParser

from app.client.alterations import refused_with_places
from app.client.context import Context
from app.client.documents import read_document
from app.client.errors import DONE, REFUSED
from app.client.plans import PLAN_MEMBERS, add_plan_options, plan_body, plan_lines
from app.client.yaml_writing import yaml_lines


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("file", metavar="FILE", help="a document (YAML or JSON); - reads stdin")
    add_plan_options(parser)


def run(context: Context) -> int:
    """Print the plan; exit code 1 where it has changes, so that a script can tell."""
    context.refuse_output("csv")
    document = read_document(context.options.file)
    with refused_with_places(document.place):
        plan = context.service.ask("/quotas/plans", plan_body(context, document), *PLAN_MEMBERS)
    if context.output == "json":
        context.print_json(plan)
    elif context.output == "yaml":
        context.print(yaml_lines(plan))
    else:
        context.print(plan_lines(plan, context.style))
    return REFUSED if plan["changes"] or plan["conflicts"] else DONE
