"""Fairness: what one caller may have of this process, so that there is enough for the others."""

import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from app.http.errors import RateLimitedError
from app.http.request_body import LargeBodies
from app.http.token_buckets import TokenBuckets

BURST_S: Final = 2.0
"""How many seconds' worth of requests a principal may send at once."""

FAILURES_BURST_S: Final = 20.0
"""The same for bad credentials: more, so that a caller who tries them all out is told of each."""

PUBLIC_BURST_S: Final = 10.0
"""The same for requests that need no credential."""

_IPV6_NETWORK_BITS: Final = 64
"""Whoever has one IPv6 address has so many that the network counts as one."""

_SOON_S: Final = 1.0
"""When to come back where nobody knows when there will be room, in seconds."""


class Limited(StrEnum):
    """What is limited, as the metric ``rate_limited_total`` names it."""

    READS = "reads"
    ALTERATIONS = "alterations"
    AT_ONCE = "at_once"
    FAILURES = "failures"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class Limits:
    """Figures for each principal, or for each address; 0 for no limit.

    Attributes:
        reads_per_s: Requests that alter nothing, for each principal.
        alterations_per_s: Requests that alter or validate, for each principal.
        requests_at_once: Requests that are worked on at a time, for each principal: from the end
            of the request to the beginning of its answer.
        failures_per_s: Refused credentials, for each address that they come from.
        public_per_s: Requests of a route that needs no credential, for each route and address.
    """

    reads_per_s: float
    alterations_per_s: float
    requests_at_once: int
    failures_per_s: float
    public_per_s: float = 0.0


class WorkingHere:
    """Counts those of this process."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, principal: str) -> int:
        """Count one more; return how many there are then."""
        number = self._numbers[principal] = self._numbers.get(principal, 0) + 1
        return number

    def remove(self, principal: str) -> None:
        """Count one less."""
        number = self._numbers.pop(principal) - 1
        if number:
            self._numbers[principal] = number


def _uncounted(_: str) -> None:
    """Count nothing."""


class RateLimits:
    """Keeps count; ``bodies`` is the room for large ones in this process.

    Args:
        limits: The figures.
        count: Told which limit was reached.
        now: A clock in seconds that never goes back.
    """

    def __init__(
        self,
        limits: Limits,
        count: Callable[[str], None] = _uncounted,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._count = count
        self._now = now
        self._reads = TokenBuckets(limits.reads_per_s, BURST_S)
        self._alterations = TokenBuckets(limits.alterations_per_s, BURST_S)
        self._failures = TokenBuckets(limits.failures_per_s, FAILURES_BURST_S)
        self._public = TokenBuckets(limits.public_per_s, PUBLIC_BURST_S)
        self._working = WorkingHere()
        self.bodies = LargeBodies()

    def admit(self, principal: str, kind: Limited) -> None:
        """Count a request.

        Raises:
            RateLimitedError: One too many.
        """
        is_read = kind is Limited.READS
        wait_s = (self._reads if is_read else self._alterations).take(principal, self._now())
        if wait_s:
            per_s = self._limits.reads_per_s if is_read else self._limits.alterations_per_s
            detail = f"{principal} sends more than {per_s:g} {kind} a second."
            raise self._limited(kind, detail, wait_s)

    def admit_failure(self, address: str) -> None:
        """Count a refused credential.

        Raises:
            RateLimitedError: One too many from this address or, for IPv6, its network.
        """
        if wait_s := self._failures.take(network_of(address), self._now()):
            detail = f"More than {self._limits.failures_per_s:g} bad credentials a second."
            raise self._limited(Limited.FAILURES, detail, wait_s)

    def admit_public(self, address: str, route: str) -> None:
        """Count a request that needs no credential; one route takes nothing from another.

        Raises:
            RateLimitedError: One too many from this address or, for IPv6, its network.
        """
        if self._limits.public_per_s == 0:
            return
        if wait_s := self._public.take(f"{network_of(address)} {route}", self._now()):
            detail = f"More than {self._limits.public_per_s:g} requests a second for {route}."
            raise self._limited(Limited.PUBLIC, detail, wait_s)

    def begin(self, principal: str) -> Callable[[], None]:
        """Count a request as being worked on; return what ends that, once.

        Raises:
            RateLimitedError: The principal has as many as it may.
        """
        most = self._limits.requests_at_once
        number = self._working.add(principal)
        if most and number > most:
            self._working.remove(principal)
            detail = f"{principal} has {most} requests at once."
            raise self._limited(Limited.AT_ONCE, detail, _SOON_S)
        return partial(self._working.remove, principal)

    def _limited(self, kind: Limited, detail: str, wait_s: float) -> RateLimitedError:
        self._count(kind.value)
        return RateLimitedError(detail, retry_after_s=wait_s)


def network_of(address: str) -> str:
    """Return what counts as one address: for IPv6 its network."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_NETWORK_BITS), strict=False))
