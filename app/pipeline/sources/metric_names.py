"""Which quota key a metric is about, and what it says of it."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from app.domain.quota_keys import QuotaKey


class Meaning(NamedTuple):
    """What a metric is.

    Attributes:
        key: The quota key; '' for ``up``.
        attribute: ``rate``, ``throttle``, ``tokens`` or ``up``.
    """

    key: str
    attribute: str


UP: Final = "up"
RATE: Final = "rate"
THROTTLE: Final = "throttle"
TOKENS: Final = "tokens"

_RATES: Final[Mapping[str, tuple[QuotaKey, str]]] = {
    "produce": (QuotaKey.PRODUCER_BYTE_RATE, "byte_rate"),
    "fetch": (QuotaKey.CONSUMER_BYTE_RATE, "byte_rate"),
    "request": (QuotaKey.REQUEST_PERCENTAGE, "request_time"),
    "controllermutation": (QuotaKey.CONTROLLER_MUTATION_RATE, "mutation_rate"),
}
"""The resource in lower case: its key, and the attribute that is its rate.

Source: ``ClientQuotaManager``, ``ClientRequestQuotaManager``, ``ControllerMutationQuotaManager``.
"""

_KEYS: Final = {str(key): Meaning(key, RATE) for key, _ in _RATES.values()}
_PREFIX: Final = "kafka_server_"


@lru_cache(maxsize=4096)
def meaning_of(metric: str, resource: str) -> Meaning | None:
    """Return what a metric is; null where it is none of a quota.

    Args:
        metric: ``kafka_server_quota_<attribute>`` with a resource,
            ``kafka_server_<resource>_<attribute>``, the attribute alone, a quota key, or ``up``;
            without one the resource's rate is meant.
        resource: As the broker spells it, in any case: ``Produce``, ``Fetch``, ``Request``,
            ``ControllerMutation``.
    """
    name = metric.lower().replace("-", "_")
    kind = resource.lower().replace("_", "").replace("-", "")
    if name == UP:
        return Meaning("", UP)
    if name in _KEYS:
        return _KEYS[name] if kind in ("", _resource_of(name)) else None
    if name.startswith(_PREFIX):
        first, _, name = name.removeprefix(_PREFIX).partition("_")
        if not name or (first != "quota" and kind not in ("", first)):
            return None
        kind = kind if first == "quota" else first
    return _meaning(kind, name)


def _meaning(kind: str, attribute: str) -> Meaning | None:
    known = _RATES.get(kind)
    if known is None:
        return None
    key, rate = known
    if attribute in ("", rate):
        return Meaning(key, RATE)
    if attribute == "throttle_time":
        return Meaning(key, THROTTLE)
    if attribute == TOKENS and key is QuotaKey.CONTROLLER_MUTATION_RATE:
        return Meaning(key, TOKENS)
    return None


def _resource_of(key: str) -> str:
    return next(resource for resource, (known, _) in _RATES.items() if known == key)
