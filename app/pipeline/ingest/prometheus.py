"""A server with Prometheus' API, asked by ``query_range``: an answer for each metric and hour.

Prometheus, VictoriaMetrics and Thanos have this API.
"""

import argparse
import json
import re
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pyarrow as pa

from app.domain.broker_metrics import UP, is_quota_metric
from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.ingest.inputs import PROMETHEUS, Inputs
from app.pipeline.ingest.points import Rules
from app.pipeline.options import read_file

MOST_POINTS: Final = 11_000
"""Of one series in one answer. Source: Prometheus' ``web/api/v1``, the check of ``query_range``."""

USUAL_STEP_MS: Final = 15_000
_LONGEST_STEP_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_TIMEOUT_S: Final = 60.0
_PAUSES_S: Final = (0.2, 1.0, 5.0)
_LONGEST_PAUSE_S: Final = 30.0
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000}
_STEP: Final = re.compile(r"([0-9]{1,6})(ms|s|m)")
_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask, and as which user.

    The URL has no slash at its end. The ``authorization`` is a header, null for none,
    and never printed.
    """

    url: str
    authorization: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """A question in PromQL whose answer has at most ``MOST_POINTS`` points of a series.

    Times are milliseconds of the epoch; the end is inclusive.
    """

    metric: str
    expression: str
    start_ms: int
    end_ms: int
    step_ms: int

    @property
    def name(self) -> str:
        """What people call it: the metric and the time of its first point."""
        start = datetime.fromtimestamp(self.start_ms / 1_000, UTC)
        return f"{self.metric} {start:%Y-%m-%dT%H:%M:%SZ}"


def add_prometheus_options(parser: argparse.ArgumentParser) -> None:
    """Add how to ask a server; ``--input`` is its address."""
    group = parser.add_argument_group("options of --format prometheus")
    group.add_argument(
        "--prometheus-token-file", metavar="FILE", help="holds the bearer token for the server"
    )
    group.add_argument("--prometheus-user", metavar="NAME", help="of HTTP Basic authentication")
    group.add_argument(
        "--prometheus-password-file", metavar="FILE", help="holds the password of that user"
    )
    group.add_argument(
        "--step",
        type=_step_ms,
        default=USUAL_STEP_MS,
        metavar="DURATION",
        help="between two points, such as 15s, the default; at most 60s",
    )


def _step_ms(text: str) -> int:
    read = _STEP.fullmatch(text)
    step_ms = int(read[1]) * _UNITS_MS[read[2]] if read else 0
    if not 0 < step_ms <= _LONGEST_STEP_MS:
        message = f"{text!r} is not a duration such as 15s or 500ms, at most 60s"
        raise argparse.ArgumentTypeError(message)
    return step_ms


def server_of(uri: str, options: argparse.Namespace) -> Server:
    """Return the server that an ``--input`` names, with the credential of the options.

    Raises:
        UsageError: It is no address, or an option or file is missing or wrong.
    """
    address = urlsplit(uri)
    if address.scheme not in ("http", "https") or not address.hostname or address.query:
        message = f"--input {uri} is not the address of a server, such as http://prometheus:9090."
        raise UsageError(message)
    if address.username is not None or address.password is not None:
        message = (
            "--input: leave user and password out of the address; name them by --prometheus-user "
            "and --prometheus-password-file."
        )
        raise UsageError(message)
    return Server(uri.rstrip("/").removesuffix("/api/v1"), _authorization_of(options))


def _authorization_of(options: argparse.Namespace) -> str | None:
    token_file, user = options.prometheus_token_file, options.prometheus_user
    password_file = options.prometheus_password_file
    if token_file and (user or password_file):
        message = "Give --prometheus-token-file or --prometheus-user, not both."
        raise UsageError(message)
    if (user is None) != (password_file is None):
        message = "--prometheus-user and --prometheus-password-file belong together."
        raise UsageError(message)
    if token_file:
        return f"Bearer {_secret('--prometheus-token-file', token_file)}"
    if user is not None:
        password = _secret("--prometheus-password-file", password_file)
        return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
    return None


def _secret(option: str, file: str) -> str:
    secret = read_file(option, file).strip()
    if not secret or not (secret.isascii() and secret.isprintable()):
        message = f"{option} {file} must hold one line of printable ASCII."
        raise UsageError(message)
    return secret


def server_inputs(servers: Iterable[Server], rules: Rules, step_ms: int) -> Inputs:
    """Ask servers which quota metrics they have; each metric and hour is an input.

    Raises:
        UsageError: The period lacks a beginning or an end, or a credential is no good.
        InfrastructureError: A server does not answer.
    """
    inputs = Inputs(PROMETHEUS, read_item=read_answer)
    for number, server in enumerate(dict.fromkeys(servers)):
        for query in queries_of(server, rules.since_us, rules.until_us, step_ms):
            inputs.items.append((server, query))
            inputs.names.append(f"{server.url} {query.name}")
            inputs.sources.append(number)
            inputs.read.append([server.url, *asdict(query).values()])
    inputs.keys = inputs.names
    return inputs


def queries_of(
    server: Server, since_us: int | None, until_us: int | None, step_ms: int
) -> list[RangeQuery]:
    """Ask which quota metrics there are, and return a query for each of them and hour.

    ``up`` is asked for of the jobs that have quota metrics.

    Raises:
        UsageError: The period lacks a beginning or an end, or the credential is no good.
        InfrastructureError: The server does not answer.
    """
    if since_us is None or until_us is None:
        message = "--format prometheus needs the period to ask for: give --from and --to."
        raise UsageError(message)
    period = {"start": f"{since_us / 1e6}", "end": f"{until_us / 1e6}"}
    with _client(server) as client:
        names = _ask(client, server, "label/__name__/values", period)
        metrics = sorted(name for name in _texts(names, server) if is_quota_metric(name))
        jobs = []
        if metrics:
            match = {"match[]": f"{{__name__=~{_any_of(metrics)}}}", **period}
            jobs = _texts(_ask(client, server, "label/job/values", match), server)
    asked = [(name, f"{{__name__={_quoted(name)}}}") for name in metrics]
    if jobs:
        asked.append((UP, f"{UP}{{job=~{_any_of(sorted(jobs))}}}"))
    return [
        RangeQuery(name, expression, start_ms, end_ms, step_ms)
        for start_ms, end_ms in spans_of(-(-since_us // 1_000), -(-until_us // 1_000), step_ms)
        for name, expression in asked
    ]


def spans_of(since_ms: int, until_ms: int, step_ms: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last points of each hour, or less where an answer may not have as many.

    Points are multiples of the step, the first one not before ``since_ms`` and the last one before
    ``until_ms``.
    """
    at = since_ms
    while at < until_ms:
        end = min(at - at % _HOUR_MS + _HOUR_MS, at + MOST_POINTS * step_ms, until_ms)
        first, last = -(-at // step_ms) * step_ms, (end - 1) // step_ms * step_ms
        if first <= last:
            yield first, last
        at = end


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _any_of(names: Sequence[str]) -> str:
    return _quoted("|".join(map(re.escape, names)))


def read_answer(item: tuple[Server, RangeQuery]) -> Iterator[pa.RecordBatch]:
    """Read the answer to a query: source, line (null) and text.

    Raises:
        InfrastructureError: A server stops to answer, or refuses a query.
    """
    server, query = item
    asked = {
        "query": query.expression,
        "start": f"{query.start_ms / 1_000}",
        "end": f"{query.end_ms / 1_000}",
        "step": f"{query.step_ms / 1_000}",
        # Thanos leaves out what a store does not answer, unless it is forbidden to.
        "partial_response": "false",
    }
    with _client(server) as client:
        answer = _ask(client, server, "query_range", asked)
    # A cluster of VictoriaMetrics says so.
    if answer.get("isPartial"):
        message = f"{server.url} answers {query.name} incompletely: a node of it is missing."
        raise InfrastructureError(message)
    source, text = f"{server.url} {query.name}", json.dumps(answer)
    columns = [[source], pa.nulls(1, pa.int64()), [text]]
    yield pa.record_batch(columns, ["source", "line", "text"])


def _client(server: Server) -> httpx.Client:
    # A proxy of this shell is not for metrics; a redirect would take the credential elsewhere.
    headers = {} if server.authorization is None else {"Authorization": server.authorization}
    return httpx.Client(headers=headers, timeout=_TIMEOUT_S, trust_env=False)


def _ask(client: httpx.Client, server: Server, path: str, query: Mapping[str, str]) -> Any:
    """Return the JSON of an answer; what may pass is asked for again."""
    pauses = iter(_PAUSES_S)
    while True:
        failure: InfrastructureError | UsageError
        wait_s: float | None = 0.0
        try:
            response = client.get(f"{server.url}/api/v1/{path}", params=query)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            failure = InfrastructureError(f"{server.url} cannot be reached ({error}).")
        else:
            if response.status_code == HTTPStatus.OK:
                return _data_of(response, server)
            failure, wait_s = _error_of(response, server), _pause_of(response)
        pause_s = next(pauses, None)
        if pause_s is None or wait_s is None:
            raise failure
        time.sleep(max(pause_s, wait_s))


def _data_of(response: httpx.Response, server: Server) -> Any:
    with suppress(ValueError, RecursionError, TypeError, KeyError):
        document = response.json()
        if document["status"] == "success" and "data" in document:
            return document
    raise _no_answer(server)


def _pause_of(response: httpx.Response) -> float | None:
    if response.status_code not in _AGAIN:
        return None
    asked = response.headers.get("Retry-After", "")
    return min(float(asked), _LONGEST_PAUSE_S) if asked.isascii() and asked.isdecimal() else 0.0


def _error_of(response: httpx.Response, server: Server) -> InfrastructureError | UsageError:
    status = response.status_code
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        message = (
            f"{server.url} answers {status}: give --prometheus-token-file, or --prometheus-user "
            "with --prometheus-password-file, of a user who may query."
        )
        return UsageError(message)
    try:
        why = str(response.json()["error"])
    except (ValueError, RecursionError, TypeError, KeyError):
        why = response.reason_phrase
    return InfrastructureError(f"{server.url} answers {status}: {why:.300}.")


def _no_answer(server: Server) -> InfrastructureError:
    message = f"{server.url} answers something else than Prometheus' API: is it the address?"
    return InfrastructureError(message)


def _texts(document: Any, server: Server) -> list[str]:
    values = document["data"]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _no_answer(server)
    return values
