"""What a gauge of several workers is: their sum, one of them, or each on its own."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Joined(StrEnum):
    """How the values of the workers become those of the service."""

    SUM = "their sum"
    MOST = "the largest"
    LEAST = "the smallest"
    EACH = "each worker's, with the label `worker`"


OF_GAUGES: Final[Mapping[str, Joined]] = {
    "http_server_active_requests": Joined.SUM,
    "http_server_open_connections": Joined.SUM,
    "audit_outcomes_waiting": Joined.SUM,
    "kafka_connections": Joined.SUM,
    "db_pool_in_use": Joined.SUM,
    "quota_open_intents": Joined.MOST,
    "quota_oldest_open_intent_seconds": Joined.MOST,
    "quota_quarantined_slots": Joined.MOST,
    "audit_partition_months_ahead": Joined.LEAST,
    "quota_drift_scan_age_seconds": Joined.LEAST,
    "authn_jwks_age_seconds": Joined.EACH,
    "authz_acl_age_seconds": Joined.EACH,
    "breaker_state": Joined.EACH,
    "kafka_wrong_cluster": Joined.EACH,
    "policy_rules": Joined.EACH,
    "policy_outdated": Joined.EACH,
}
"""Those of a process, such as its memory, are each worker's."""


def joined(name: str) -> Joined:
    """Return how a gauge of the service is made."""
    return OF_GAUGES.get(name, Joined.EACH)
