"""``apply FILE`` or ``apply --plan ID``: do what was planned, or nothing."""

import sys
from argparse import ArgumentParser
from typing import Any
from urllib.parse import quote

from app.client.alterations import conclude, refused_with_places
from app.client.arguments import add_change_options
from app.client.connection import document as json_of
from app.client.context import Context
from app.client.documents import read_document
from app.client.errors import DONE, UsageError
from app.client.plans import PLAN_MEMBERS, add_plan_options, plan_body, plan_lines
from app.client.terminal import Style


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument("file", nargs="?", metavar="FILE", help="a document; - reads stdin")
    parser.add_argument("--plan", metavar="ID", help="apply a plan that was made before")
    add_plan_options(parser)
    parser.add_argument("--force", action="store_true", help="take over what other owners hold")
    add_change_options(parser, validate=False)


def run(context: Context) -> int:
    """Plan and apply; the plan is shown on standard error."""
    context.refuse_output("csv")
    plan = _plan(context)
    if context.output == "text":
        sys.stdout.flush()
        style = Style.of(sys.stderr, context.option("color", "auto"))
        sys.stderr.writelines(f"{line}\n" for line in plan_lines(plan, style))
    body = {name: context.option(name) for name in ("force", "reason")}
    body = {name: value for name, value in body.items() if value is not None}
    path = f"/quotas/plans/{quote(plan['plan_id'], safe='')}/apply"
    again = f"`apply --plan {plan['plan_id']}`, with the same --force and --reason,"
    answer = context.service.alter(path, body, context.option("idempotency_key"), again)
    code = conclude(context, answer)
    if code == DONE and context.output == "text":
        context.note(f"Applied: alteration {json_of(answer, 'alteration_id')['alteration_id']}.")
    return code


def _plan(context: Context) -> Any:
    file, plan_id = context.option("file"), context.option("plan")
    if (file is None) == (plan_id is None):
        raise UsageError("apply needs a FILE, or --plan ID; one of them.")
    if plan_id is not None:
        if any(context.option(name) for name in ("owner", "scope", "prune", "adopt")):
            raise UsageError("--owner, --scope, --prune and --adopt are part of the plan already.")
        return json_of(
            context.service.get(f"/quotas/plans/{quote(plan_id, safe='')}"), *PLAN_MEMBERS
        )
    document = read_document(file)
    with refused_with_places(document.place):
        return context.service.ask("/quotas/plans", plan_body(context, document), *PLAN_MEMBERS)
