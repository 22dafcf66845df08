"""Poll Prometheus endpoints, all at once, at multiples of an interval."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

import httpx

from app.domain.broker_metrics import Sample, quota_samples
from app.pipeline.errors import UsageError

_MOST_WAIT_S: Final = 10.0
_USUAL_PATH: Final = "/metrics"


@dataclass(frozen=True)
class Endpoint:
    """Where one broker's metrics are."""

    broker_id: int
    url: str

    @classmethod
    def of(cls, text: str) -> Self:
        """Read BROKER_ID=URL; a URL without a path means ``/metrics``.

        Raises:
            UsageError: It has another form.
        """
        broker, _, url = text.partition("=")
        address = urlsplit(url)
        if (
            not broker.isdecimal()
            or address.scheme not in ("http", "https")
            or not address.hostname
        ):
            message = (
                f"--endpoint {text}: write the broker's id and the address of its metrics, "
                "such as 1=http://broker-1:9404/metrics."
            )
            raise UsageError(message)
        path = address.path if address.path.strip("/") else _USUAL_PATH
        return cls(int(broker), address._replace(path=path).geturl())


@dataclass(frozen=True)
class Scrape:
    """What one endpoint answered at one time.

    Attributes:
        at: Seconds since 1970, a multiple of the interval.
        broker_id: Whose metrics these are.
        samples: Those of quotas.
        problem: Why there are none; null where the endpoint answered.
    """

    at: float
    broker_id: int
    samples: Sequence[Sample] = ()
    problem: str | None = None


async def ticks(interval_s: float, duration_s: float | None) -> AsyncIterator[float]:
    """Give each multiple of the interval when it comes, from the next one on.

    Args:
        interval_s: Between two.
        duration_s: From the first one on; null never ends. There is one at least.
    """
    at = first = _next(interval_s, time.time())
    while duration_s is None or at == first or at < first + duration_s:
        await asyncio.sleep(max(0.0, at - time.time()))
        yield at
        # A machine that slept misses some.
        at = max(at + interval_s, _next(interval_s, time.time()))


def _next(interval_s: float, now: float) -> float:
    return math.ceil(now / interval_s) * interval_s


class Scraper:
    """Asks every endpoint at once; one that does not answer in time holds up nobody."""

    def __init__(self, endpoints: Sequence[Endpoint], interval_s: float) -> None:
        """Take the endpoints; each has an interval, at most 10 s, to answer."""
        self._endpoints = endpoints
        self._deadline_s = min(_MOST_WAIT_S, interval_s)
        # A proxy of this shell is not for brokers.
        self._client = httpx.AsyncClient(
            timeout=self._deadline_s, trust_env=False, follow_redirects=True
        )

    async def __aenter__(self) -> Self:
        """Begin; connections stay open between scrapes."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def scrape(self, at: float) -> list[Scrape]:
        """Ask all; return what each answered, in their order."""
        return await asyncio.gather(*(self._ask(endpoint, at) for endpoint in self._endpoints))

    async def _ask(self, endpoint: Endpoint, at: float) -> Scrape:
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await self._client.get(endpoint.url)
            answer.raise_for_status()
            samples = await asyncio.to_thread(_samples, answer)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
            return Scrape(at, endpoint.broker_id, problem=_sentence(error, self._deadline_s))
        return Scrape(at, endpoint.broker_id, samples)


def _samples(answer: httpx.Response) -> list[Sample]:
    return list(quota_samples(answer.content.decode()))


def _sentence(error: Exception, deadline_s: float) -> str:
    match error:
        case httpx.HTTPStatusError():
            return f"answers with status {error.response.status_code}"
        case TimeoutError() | httpx.TimeoutException():
            return f"does not answer within {deadline_s:g} s"
        case httpx.HTTPError():
            return f"cannot be reached ({error})"
        case _:
            return f"answers something else than Prometheus text ({error})"


def states(scrapes: Sequence[Scrape]) -> Mapping[int, str | None]:
    """Return each broker's problem."""
    return {scrape.broker_id: scrape.problem for scrape in scrapes}
