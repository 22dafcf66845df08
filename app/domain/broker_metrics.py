"""What brokers report of quotas: the metrics in an exporter's text, their keys, their names."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple
from urllib.parse import quote_plus, unquote_to_bytes

from app.domain.metric_labels import CLIENT_ID, RESOURCE, USER, labels_by_field, plain_name
from app.domain.quota_keys import QuotaKey


class QuotaMetric(NamedTuple):
    """What a metric is.

    Attributes:
        key: The quota key; '' for ``up``.
        attribute: ``rate``, ``throttle``, ``tokens``, ``utilization`` or ``up``.
    """

    key: str
    attribute: str


UP: Final = "up"
RATE: Final = "rate"
THROTTLE: Final = "throttle"
TOKENS: Final = "tokens"
UTILIZATION: Final = "utilization"
"""The share of the limit as a broker computes it, which no reader uses.

Source: KIP-1373, the attribute ``quota-utilization``.
"""

NO_QUOTA_METRICS: Final = "no quotas are set, or the exporter has no rule for them"
"""Why a scrape has no quota metrics; its text does not say which of the two it is."""

_RATES: Final[Mapping[str, tuple[QuotaKey, str]]] = {
    "produce": (QuotaKey.PRODUCER_BYTE_RATE, "byte_rate"),
    "fetch": (QuotaKey.CONSUMER_BYTE_RATE, "byte_rate"),
    "request": (QuotaKey.REQUEST_PERCENTAGE, "request_time"),
    "controllermutation": (QuotaKey.CONTROLLER_MUTATION_RATE, "mutation_rate"),
}
"""The resource in lower case: its key, and the attribute that is its rate.

Source: ``ClientQuotaManager``, ``ClientRequestQuotaManager``, ``ControllerMutationQuotaManager``.
"""

RESOURCES: Final = tuple(_RATES)
"""The resources as ``quota_metric_of`` takes them, in lower case without separators."""

_OWN_RESOURCE: Final = {"request_time": "request", "mutation_rate": "controllermutation"}
"""Attributes that one resource alone has."""

_KEYS: Final = {str(key): QuotaMetric(key, RATE) for key, _ in _RATES.values()}

_UNITS: Final[Mapping[str, tuple[str, ...]]] = {
    "byte_rate": ("", "_bytes_per_second"),
    "request_time": ("", "_percent"),
    "mutation_rate": ("", "_per_second"),
    "throttle_time": ("", "_ms", "_milliseconds"),
    TOKENS: ("",),
    "quota_utilization": ("",),
}
"""The attributes, and what collectors append to name their units."""

_PREFIXES: Final = (
    *("kafka_server_", "kafka_server_quota_", "kafka_server_client_quota_", "kafka_"),
    *("kafka_quota_", "kafka_client_quota_", "kafka_user_", "kafka_client_"),
)
_OF_RESOURCE: Final = {"": "", "controller_mutation_": "controllermutation"} | {
    f"{resource}_": resource for resource in _RATES
}


def _exported_names() -> Iterator[tuple[str, tuple[str, str]]]:
    for prefix, (middle, resource), (attribute, units) in product(
        ("", *_PREFIXES), _OF_RESOURCE.items(), _UNITS.items()
    ):
        for unit in units:
            yield f"{prefix}{middle}{attribute}{unit}", (resource, attribute)


_EXPORTED: Final[Mapping[str, tuple[str, str]]] = dict(_exported_names())
"""A metric's name in lower case with _ alone: the resource that it names, and the attribute.

Source: the examples of the JMX exporter and of Telegraf; Strimzi's ``KafkaMetricWrapper``.
"""


@lru_cache(maxsize=4096)
def quota_metric_of(metric: str, resource: str) -> QuotaMetric | None:
    """Return what a metric is; null where it is none of a quota.

    Args:
        metric: ``kafka_server_quota_<attribute>`` with a resource,
            ``kafka_server_<resource>_<attribute>``, the attribute alone, a quota key, or ``up``;
            without one the resource's rate is meant.
        resource: As the broker spells it, in any case: ``Produce``, ``Fetch``, ``Request``,
            ``ControllerMutation``; anything else says nothing.
    """
    name = _plain_metric(metric)
    kind = plain_name(resource)
    kind = kind if kind in _RATES else ""
    if name == UP:
        return QuotaMetric("", UP)
    if name in _KEYS:
        return _KEYS[name] if kind in ("", _resource_of(name)) else None
    named, attribute = _EXPORTED.get(name, ("", name))
    if named and kind not in ("", named):
        return None
    return _of_resource(named or kind or _OWN_RESOURCE.get(attribute, ""), attribute)


def _plain_metric(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _of_resource(kind: str, attribute: str) -> QuotaMetric | None:
    if kind not in _RATES:
        return None
    key, rate = _RATES[kind]
    if attribute in ("", rate):
        return QuotaMetric(key, RATE)
    if attribute == "throttle_time":
        return QuotaMetric(key, THROTTLE)
    if attribute == "quota_utilization":
        return QuotaMetric(key, UTILIZATION)
    if attribute == TOKENS and key is QuotaKey.CONTROLLER_MUTATION_RATE:
        return QuotaMetric(key, TOKENS)
    return None


def _resource_of(key: str) -> str:
    return next(resource for resource, (limited, _) in _RATES.items() if limited == key)


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
    lines = [
        (number, line)
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if lines and not any(_SAMPLE.fullmatch(line) for _, line in lines):
        raise ValueError("no line of it is a metric")
    for number, line in lines:
        named = _NAME.match(line)
        if named is None or not is_quota_metric(named[1]):
            continue
        sample = _SAMPLE.fullmatch(line)
        value = None if sample is None else _number_of(sample[3])
        if sample is None or value is None:
            raise ValueError(f"line {number} is not a metric")
        yield sample_of_labels(sample[1], _labels_of(sample[2] or ""), value)


@lru_cache(maxsize=65_536)
def is_quota_metric(metric: str) -> bool:
    """Tell whether a metric that an exporter names so is a rate, a delay or tokens of a quota."""
    name = _plain_metric(metric)
    return name.startswith("kafka_") and _EXPORTED.get(name, _OTHER)[1] not in _NO_SAMPLE


_OTHER: Final = ("", "")
_NO_SAMPLE: Final = ("", "quota_utilization")

_NAME: Final = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)")
_SAMPLE: Final = re.compile(
    r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?[0-9]+)?\s*"
)
"""Name, labels, value, time. Source: Prometheus's text format 0.0.4."""

_LABEL: Final = re.compile(r'([A-Za-z_][\w.-]*)\s*=\s*"((?:\\.|[^"\\])*)"')
"""Some exporters write ``client-id``, which Prometheus does not allow."""

_LABEL_ESCAPE: Final = re.compile(r'\\(["\\n])')


def _labels_of(labels: str) -> Mapping[str, str]:
    return {
        name: _LABEL_ESCAPE.sub(_unescape_label, value) for name, value in _LABEL.findall(labels)
    }


def sample_of_labels(metric: str, exported: Mapping[str, str], value: float) -> Sample:
    """Return the sample of a metric with labels as exported, in any spelling."""
    fields = labels_by_field(name for name, value in exported.items() if value)
    resource, user, client_id = (
        exported[fields[field][0]] if field in fields else ""
        for field in (RESOURCE, USER, CLIENT_ID)
    )
    return Sample(metric, resource, user, client_id, value)


def _number_of(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _unescape_label(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_NEVER_QUOTED: Final = re.compile(r"[\w\-%. \t]*", re.ASCII)
_ESCAPES: Final = {"\\": "\\", '"': '"', "*": "*", "?": "?", "n": "\n"}


UNSPLIT: Final = r",\s*client-?id="
"""What stands in a ``user`` tag that an exporter's rule has not split.

A rule for users alone that comes before that for users and client-ids takes both for the user. It
cannot be a name: brokers encode commas. Source: ``Sanitizer.sanitize``.
"""
_UNSPLIT: Final = re.compile(UNSPLIT)


def is_unsplit(user: str) -> bool:
    """Tell whether a ``user`` tag holds a client-id, so that the exporter's rules are at fault."""
    return _UNSPLIT.search(user) is not None


def user_of_tag(tag: str) -> str | None:
    """Return the user that a ``user`` tag names, or null where it cannot be decoded.

    Source: ``Sanitizer.sanitize``, which form-encodes the name.
    """
    if is_unsplit(tag):
        return None
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


def tag_of_user(name: str) -> str:
    """Return the ``user`` tag of a user's metrics. Source: ``Sanitizer.sanitize``."""
    encoded = quote_plus(name, safe="-._")
    return encoded.replace("+", "%20").replace("~", "%7E")


def tag_of_client_id(name: str) -> str:
    """Return the ``client-id`` tag of a client-id's metrics, as JMX has it.

    Source: ``Sanitizer.jmxSanitize``, ``ObjectName.quote``.
    """
    if _NEVER_QUOTED.fullmatch(name):
        return name
    return f'"{_TO_QUOTE.sub(_quoted, name)}"'


_TO_QUOTE: Final = re.compile(r'[\\"*?\n]')


def _quoted(special: re.Match[str]) -> str:
    return "\\n" if special[0] == "\n" else f"\\{special[0]}"


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
