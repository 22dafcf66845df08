"""What brokers report of quotas: the metrics in an exporter's text, their keys, their names."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from app.domain.quota_keys import QuotaKey


class QuotaMetric(NamedTuple):
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

_KEYS: Final = {str(key): QuotaMetric(key, RATE) for key, _ in _RATES.values()}
_PREFIX: Final = "kafka_server_"


@lru_cache(maxsize=4096)
def quota_metric_of(metric: str, resource: str) -> QuotaMetric | None:
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
        return QuotaMetric("", UP)
    if name in _KEYS:
        return _KEYS[name] if kind in ("", _resource_of(name)) else None
    if name.startswith(_PREFIX):
        first, _, name = name.removeprefix(_PREFIX).partition("_")
        if not name or (first != "quota" and kind not in ("", first)):
            return None
        kind = kind if first == "quota" else first
    return _of_resource(kind, name)


def _of_resource(kind: str, attribute: str) -> QuotaMetric | None:
    if kind not in _RATES:
        return None
    key, rate = _RATES[kind]
    if attribute in ("", rate):
        return QuotaMetric(key, RATE)
    if attribute == "throttle_time":
        return QuotaMetric(key, THROTTLE)
    if attribute == TOKENS and key is QuotaKey.CONTROLLER_MUTATION_RATE:
        return QuotaMetric(key, TOKENS)
    return None


def _resource_of(key: str) -> str:
    return next(resource for resource, (limited, _) in _RATES.items() if limited == key)


_QUOTA_METRIC: Final = re.compile(
    r"kafka_server_(quota|produce|fetch|request|controllermutation)_"
    r"(byte_rate|request_time|mutation_rate|tokens|throttle_time)",
    re.IGNORECASE,
)
"""Source: the examples of the JMX exporter; Strimzi's KafkaMetricWrapper."""

_LABELS: Final[Mapping[str, str]] = {
    "resource": "resource",
    "type": "resource",
    "user": "user",
    "clientid": "client_id",
}


_COLUMNS: Final = ("resource", "user", "client_id")


class Sample(NamedTuple):
    """One sample; labels as exported, '' where absent.

    Attributes:
        resource: ``Produce``, ``Fetch``, ``Request`` or ``ControllerMutation`` as exported;
            '' where the metric's name tells it.
        user: Still URL-encoded where the exporter leaves it so.
        client_id: Still quoted where the exporter leaves it so.
        value: NaN where nothing was recorded of late.
    """

    metric: str
    resource: str
    user: str
    client_id: str
    value: float


def quota_samples(text: str) -> Iterator[Sample]:
    """Yield the quota metrics of a scrape; everything else is left out.

    Raises:
        ValueError: This is not Prometheus text.
    """
    lines = text.split("\n")
    metrics = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if metrics and not any(map(_SAMPLE.fullmatch, metrics)):
        raise ValueError("no line of it is a metric")
    for line in filter(_QUOTA_METRIC.match, metrics):
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            raise ValueError(f"this line is not a metric: {line:.200}")
        metric, labels, value = sample.groups()
        named = _labels_of(labels or "")
        resource, user, client_id = (named.get(column, "") for column in _COLUMNS)
        yield Sample(metric, resource, user, client_id, float(value))


_SAMPLE: Final = re.compile(
    r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?[0-9]+)?\s*"
)
"""Name, labels, value, time. Source: Prometheus's text format 0.0.4."""

_LABEL: Final = re.compile(r'([A-Za-z_][\w-]*)\s*=\s*"((?:\\.|[^"\\])*)"')
"""Some exporters write ``client-id``, which Prometheus does not allow."""

_LABEL_ESCAPE: Final = re.compile(r'\\(["\\n])')


def _labels_of(labels: str) -> Mapping[str, str]:
    exported = {
        name.lower().replace("_", "").replace("-", ""): _LABEL_ESCAPE.sub(_unescape_label, value)
        for name, value in _LABEL.findall(labels)
    }
    return {ours: exported[name] for name, ours in _LABELS.items() if name in exported}


def _unescape_label(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_NEVER_QUOTED: Final = re.compile(r"[\w\-%. \t]*", re.ASCII)
_ESCAPES: Final = {"\\": "\\", '"': '"', "*": "*", "?": "?", "n": "\n"}


def user_of_tag(tag: str) -> str | None:
    """Return the user that a ``user`` tag names, or null where it cannot be decoded.

    Source: ``Sanitizer.sanitize``, which form-encodes the name.
    """
    text = client_id_of_tag(tag)
    if text is None or ("%" not in text and "+" not in text):
        return text
    if text.count("%") != len(_ENCODED.findall(text)):
        return None
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeError:
        return None


def client_id_of_tag(tag: str) -> str | None:
    """Return the client-id that a ``client-id`` tag names, or null where it cannot be decoded.

    The tag is the name itself, but JMX quotes one with special characters.
    Source: ``Sanitizer.jmxSanitize``, ``ObjectName.quote``.
    """
    if len(tag) < 2 or not (tag[0] == tag[-1] == '"'):
        return readable(tag)
    name = _unescape(tag[1:-1])
    if name is not None and _NEVER_QUOTED.fullmatch(name):
        # The name itself has the quotes, and its metric did not pass JMX.
        return tag
    return name


def readable(name: str) -> str | None:
    """Return the name, or null where it is no Unicode text (a lone surrogate)."""
    if name.isascii():
        return name
    try:
        name.encode()
    except UnicodeEncodeError:
        return None
    return name


def _unescape(quoted: str) -> str | None:
    name: list[str] = []
    characters = iter(quoted)
    for character in characters:
        if character == "\\":
            meant = _ESCAPES.get(next(characters, ""))
            if meant is None:
                return None
            name.append(meant)
        elif character == '"':
            return None
        else:
            name.append(character)
    return readable("".join(name))
