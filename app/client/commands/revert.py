"""``revert ID``: take an alteration back."""

from argparse import ArgumentParser
from urllib.parse import quote

from app.client.alterations import conclude
from app.client.arguments import add_change_options
from app.client.context import Context


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("alteration", metavar="ID", help="as `audit` shows it")
    add_change_options(parser)


def run(context: Context) -> int:
    """Send the inverse; refused where the values have changed since."""
    context.refuse_output("csv")
    body = {name: context.option(name) for name in ("validate_only", "reason")}
    body = {name: value for name, value in body.items() if value is not None}
    path = f"/quotas/alterations/{quote(context.options.alteration, safe='')}/revert"
    return conclude(context, context.service.alter(path, body, context.option("idempotency_key")))
