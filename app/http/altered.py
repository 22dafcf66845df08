"""The answer to whatever alters: a report, or an error that is counted on its way out."""

from collections.abc import Awaitable
from http import HTTPStatus

from fastapi import Request, Response

from app.domain.alterations import Overall
from app.domain.errors import QuotaError
from app.http.alteration_documents import alteration_json
from app.http.alteration_endings import count_ending
from app.http.idempotency import REPLAYED_HEADER
from app.http.json_text import JsonResponse
from app.http.services import services_of
from app.service.alterations.alteration_command import AlterationReport, AlterCommand
from app.service.off_loop import off_loop


async def altered(
    request: Request, command: AlterCommand, altering: Awaitable[AlterationReport]
) -> Response:
    """Wait for an alteration, count how it ended, and answer.

    Raises:
        QuotaError: As it does.
    """
    metrics = services_of(request).metrics
    try:
        report = await altering
    except QuotaError as error:
        count_ending(metrics, command, error)
        raise
    count_ending(metrics, command, report)
    return await off_loop(len(report.results), _answer, report)


def _answer(report: AlterationReport) -> Response:
    status = HTTPStatus.MULTI_STATUS if report.overall is Overall.PARTIAL else HTTPStatus.OK
    headers = {"Location": f"/quotas/alterations/{report.alteration_id}"}
    if report.replayed:
        headers[REPLAYED_HEADER] = "true"
    return JsonResponse(alteration_json(report), status, headers=headers)
