"""``top``: which clients are nearest to their limits now, from the brokers' own metrics.

Brokers report rates without limits; the service knows the limits. Both are for each broker.
"""

import math
import re
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from app.client.arguments import seconds
from app.client.entities import show_value
from app.client.errors import DONE, UnreachableError, UsageError
from app.client.output import Context, Style, counted, table
from app.domain.broker_metrics import (
    NO_QUOTA_METRICS,
    RATE,
    THROTTLE,
    Sample,
    client_id_of_tag,
    is_unsplit,
    quota_metric_of,
    quota_samples,
    user_of_tag,
)
from app.domain.entities import show_name, visible
from app.domain.quantities import value_in_words

if TYPE_CHECKING:
    from app.client.configuration import Configuration

_DEFAULT_LIMIT: Final = 20
_BROKER_TIMEOUT_S: Final = 10.0
_HEADING: Final = ("user", "client-id", "key", "broker", "rate", "limit", "use", "throttle_ms")
_NUMBERS: Final = (3, 4, 5, 6, 7)
_ENDPOINT: Final = re.compile(r"([0-9]{1,10})=(https?://[^/?#\s]+)(/\S*)?")
_NEAR: Final = 0.8


Broker = int | str
"""Its number; of Prometheus its instance, where no label says the number."""

Endpoint = tuple[int, str]
"""A broker, and where its metrics are."""


@dataclass
class Usage:
    """What one broker reports of one bucket and key.

    Attributes:
        rate: In the unit of the key.
        throttle_ms: How long its clients are delayed on average; null where that is not reported.
        limit: Of the service; null: unlimited.
    """

    user: str
    client_id: str
    key: str
    broker: Broker
    rate: float
    throttle_ms: float | None = None
    limit: float | None = None

    @property
    def use(self) -> float | None:
        """The share of the limit; null without one."""
        return self.rate / self.limit if self.limit else None


def add_top_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "--endpoint",
        action="append",
        type=_endpoint,
        metavar="BROKER_ID=URL",
        help="a broker's Prometheus metrics, as 1=http://broker-1:9404/metrics; repeats",
    )
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="a server that scrapes the brokers instead, as http://prometheus:9090",
    )
    parser.add_argument(
        "--prometheus-token-file", metavar="FILE", help="holds a bearer token for it"
    )
    parser.add_argument("--every", type=seconds, metavar="S", help="again and again, until Ctrl-C")
    parser.add_argument(
        "--limit", type=int, metavar="N", help=f"rows at most (default: {_DEFAULT_LIMIT}; 0: all)"
    )


def _endpoint(text: str) -> Endpoint:
    read = _ENDPOINT.fullmatch(text)
    if read is None:
        message = f"{text!r} is not as in 1=http://broker-1:9404/metrics"
        raise ArgumentTypeError(message)
    path = "/metrics" if read[3] in (None, "/") else read[3]
    return int(read[1]), f"{read[2]}{path}"


def run_top(context: Context) -> int:
    """Print the busiest broker of each bucket and key, nearest to its limit first."""
    limit = context.option("limit", _DEFAULT_LIMIT)
    if limit < 0:
        raise UsageError("--limit is a number, or 0 for all.")
    scrape = _source_of(context)
    while True:
        scrapes, missing = scrape()
        found = [usage for broker, scrape in scrapes.items() for usage in usages_of(broker, scrape)]
        usages = busiest_of(_with_limits(context, found))
        listed = usages[:limit] if limit else usages
        _print(context, listed, more=len(usages) - len(listed), left_out=missing)
        if not usages and any(scrapes.values()):
            context.tell_always("No client uses anything that can be limited now.")
        if context.option("every") is None:
            return DONE
        context.print([""])
        sys.stdout.flush()
        time.sleep(context.options.every)


Scrapes = dict[Broker, list[Sample]]
Scrape = Callable[[], tuple[Scrapes, Sequence[Broker]]]
"""Returns what brokers report now, and which of them tell nothing."""


def _source_of(context: Context) -> Scrape:
    """Return where the rates come from: the options, else what the configuration says."""
    named: list[Endpoint] = context.option("endpoint", [])
    if named and context.option("prometheus"):
        raise UsageError("Give --endpoint or --prometheus, not both.")
    configured = context.service.configured
    if not named and configured.prometheus is not None:
        return partial(_ask_prometheus, context, configured)
    try:
        endpoints = named or [_endpoint(text) for text in (configured.endpoints or "").split(",")]
    except ArgumentTypeError as error:
        if configured.endpoints is None:
            raise UsageError(_NO_SOURCE) from None
        raise UsageError(f"endpoints: {error}.") from None
    return partial(_scrape_endpoints, context, endpoints)


_NO_SOURCE: Final = (
    "top needs --endpoint BROKER_ID=URL of each broker, or --prometheus URL; a profile and "
    "KAFKA_CLIENT_QUOTAS_ENDPOINTS or KAFKA_CLIENT_QUOTAS_PROMETHEUS say the same for good."
)


def _ask_prometheus(
    context: Context, configured: "Configuration"
) -> tuple[Scrapes, Sequence[Broker]]:
    from app.client.http import document  # noqa: PLC0415 - slow to import
    from app.client.prometheus import samples_by_broker  # noqa: PLC0415 - likewise

    def own() -> frozenset[str]:
        cluster_id = document(context.service.get("/me"), "cluster_id")["cluster_id"]
        return frozenset({cluster_id, configured.cluster or cluster_id})

    scrapes = samples_by_broker(configured.prometheus or "", configured.prometheus_token_file, own)
    if not scrapes:
        context.note(f"No quota metrics in Prometheus: {NO_QUOTA_METRICS}.")
    for broker, samples in scrapes.items():
        _note_unsplit(context, broker, samples)
    return scrapes, []


def _note_unsplit(context: Context, broker: Broker, samples: Sequence[Sample]) -> None:
    if any(is_unsplit(sample.user) for sample in samples):
        context.note(
            f"Broker {visible(str(broker))}: Users that hold `, client-id=` are left out: in the "
            "exporter's rules that for user and client-id must come before that for users."
        )


def _scrape_endpoints(
    context: Context, endpoints: Sequence[Endpoint]
) -> tuple[Scrapes, Sequence[Broker]]:
    scrapes = _scrape_all(context, endpoints)
    return scrapes, [broker for broker, _ in endpoints if not scrapes.get(broker)]


def _scrape_all(context: Context, endpoints: Sequence[Endpoint]) -> Scrapes:
    """Return what each broker reports of quotas; what is missing or odd is noted."""
    with ThreadPoolExecutor(len(endpoints)) as pool:
        answers = list(pool.map(_metrics, [url for _, url in endpoints]))
    if all(isinstance(answer, Exception) for answer in answers):
        raise UnreachableError(f"No broker's metrics can be read: {visible(str(answers[0]))}.")
    found: Scrapes = {}
    for (broker, _), answer in zip(endpoints, answers, strict=True):
        if isinstance(answer, Exception):
            context.note(f"Broker {broker} is left out: {answer}")
            continue
        found[broker] = answer
        if not answer:
            context.note(f"Broker {broker}: No quota metrics in this scrape: {NO_QUOTA_METRICS}.")
        _note_unsplit(context, broker, answer)
    return found


def _metrics(url: str) -> list[Sample] | Exception:
    import httpx  # noqa: PLC0415 - takes a while to import

    from app.client.receiving import send  # noqa: PLC0415 - likewise

    try:
        # A proxy of this shell is not for brokers.
        with httpx.Client(trust_env=False, timeout=_BROKER_TIMEOUT_S) as client:
            request = client.build_request("GET", url, headers={"Accept-Encoding": "gzip"})
            answer = send(client, request, redirects=True).raise_for_status()
        return list(quota_samples(answer.content.decode()))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return error


def usages_of(broker: Broker, samples: Iterable[Sample]) -> Iterator[Usage]:
    """Yield the rates in a broker's metrics that are not idle, with their delays."""
    values: dict[tuple[str, str, str], dict[str, float]] = {}
    for sample in samples:
        metric = quota_metric_of(sample.metric, sample.resource)
        user, client_id = user_of_tag(sample.user), client_id_of_tag(sample.client_id)
        if metric is not None and user is not None and client_id is not None:
            values.setdefault((user, client_id, metric.key), {})[metric.attribute] = sample.value
    for names, reported in values.items():
        rate, throttle_ms = reported.get(RATE, math.nan), reported.get(THROTTLE, math.nan)
        if rate > 0 or throttle_ms > 0:
            rate = 0.0 if math.isnan(rate) else rate
            yield Usage(*names, broker, rate, None if math.isnan(throttle_ms) else throttle_ms)


def _with_limits(context: Context, usages: Sequence[Usage]) -> Sequence[Usage]:
    identities = sorted({(usage.user, usage.client_id) for usage in usages})
    identified = [{"user": user, "client-id": client_id} for user, client_id in identities]
    limits = dict(zip(identities, context.service.resolve(identified), strict=True))
    for usage in usages:
        value = limits[usage.user, usage.client_id]["quotas"][usage.key]["value"]
        usage.limit = None if value is None else float(value)
    return usages


def busiest_of(usages: Iterable[Usage]) -> list[Usage]:
    """Return for each bucket and key the broker that uses most, nearest to the limit first."""
    found: dict[tuple[str, str, str], Usage] = {}
    for usage in sorted(usages, key=lambda usage: (usage.use or 0, usage.rate), reverse=True):
        found.setdefault((usage.user, usage.client_id, usage.key), usage)
    return list(found.values())


def _print(
    context: Context, usages: Sequence[Usage], *, more: int, left_out: Sequence[Broker]
) -> None:
    rows = [{**asdict(usage), "use": usage.use} for usage in usages]
    lines = _lines(usages, context.style) if usages else ()
    report = {"rows": rows, "more": more > 0, "left_out": left_out}
    context.write(report, lines, [_HEADING, *map(_cells, usages)])
    if more:
        context.tell_always(f"{counted(more, 'row', 'rows')} more: --limit 0 lists all.")


def _lines(usages: Sequence[Usage], style: Style) -> Iterator[str]:
    rows = [[cell or "-" for cell in _words(usage)] for usage in usages]
    heading, *lines = table([_HEADING, *rows], right=_NUMBERS)
    yield style.paint(heading, "bold")
    for line, usage in zip(lines, usages, strict=True):
        use = usage.use or 0
        yield style.paint(line, "red" if use >= 1 else "yellow" if use >= _NEAR else None)


def _words(usage: Usage) -> list[str]:
    """Return the columns for people: rate and limit with their units."""
    who, rest = _cells(usage)[:4], _cells(usage)[6:]
    return [*who, *(value_in_words(usage.key, value) for value in (usage.rate, usage.limit)), *rest]


def _cells(usage: Usage) -> list[str]:
    """Return the columns; a missing value is empty."""
    return [
        show_name(usage.user) if usage.user else "",
        show_name(usage.client_id) if usage.client_id else "",
        usage.key,
        visible(str(usage.broker)),
        _number(usage.rate),
        _number(usage.limit),
        "" if usage.use is None else f"{usage.use:.0%}",
        _number(usage.throttle_ms),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    rounded = round(value, 1)
    return show_value(int(rounded) if rounded.is_integer() else rounded)
