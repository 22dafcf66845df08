"""How requests to alter end, in numbers."""

from collections.abc import Mapping
from typing import Final

from app.domain.errors import EntityBusyError, QuotaError
from app.http.metrics import HttpMetrics
from app.service.alterations.alteration_command import AlterationReport, AlterCommand

_KEY_REFUSED: Final[Mapping[str, str]] = {
    "idempotency-key-running": "conflict",
    "idempotency-key-reused": "mismatch",
}


def count_ending(
    metrics: HttpMetrics, command: AlterCommand, ending: AlterationReport | QuotaError
) -> None:
    """Count the outcomes of a request that is not a replay, and what its key did."""
    if not ending.replayed:
        metrics.count_alterations(one.outcome for one in ending.results or ())
    if command.key is None or command.validate_only:
        return
    result = _key_result(ending)
    if result is not None:
        metrics.count_idempotency(result)


def _key_result(ending: AlterationReport | QuotaError) -> str | None:
    """Return what the key did; null where nothing was recorded, so that the key is still free."""
    if ending.replayed:
        return "replay"
    if isinstance(ending, AlterationReport):
        return "new"
    if ending.code in _KEY_REFUSED:
        return _KEY_REFUSED[ending.code]
    recorded = ending.alteration_id is not None and not isinstance(ending, EntityBusyError)
    return "new" if recorded else None
