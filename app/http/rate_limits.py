"""Fairness: what one caller may have of this process, so that there is enough for the others."""

import asyncio
import hashlib
import ipaddress
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from copy import copy
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import partial
from typing import Final, NoReturn, Self, TypeVar
from weakref import WeakValueDictionary

from app.domain.errors import NotSentError
from app.domain.validation import MAX_CHANGES
from app.http.errors import RateLimitedError
from app.service.runtime.tasks import MANY

T = TypeVar("T")

MAX_BUCKETS: Final = 10_000
"""So many are remembered; the one that was not used for longest is forgotten first."""


class TokenBuckets:
    """A bucket for each name, full at first, in bounded memory.

    A name that was forgotten begins with a full bucket; so do 10,000 others before that.

    Args:
        rate_per_s: Tokens a second for each name; 0 for no limit.
        burst_s: How many seconds' worth a name may take at once.
    """

    def __init__(self, rate_per_s: float, burst_s: float) -> None:
        self.rate_per_s = rate_per_s
        self._burst = max(1.0, rate_per_s * burst_s)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str, now: float) -> float:
        """Take a token of a name and return 0, or return in how many seconds there will be one.

        ``now`` is in seconds of any clock that never goes back.
        """
        if self.rate_per_s == 0:
            return 0.0
        tokens, at = self._buckets.pop(name, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self.rate_per_s)
        wait_s = 0.0 if tokens >= 1.0 else (1.0 - tokens) / self.rate_per_s
        self._buckets[name] = (tokens if wait_s else tokens - 1.0, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return wait_s


BURST_S: Final = 2.0
"""How many seconds' worth of requests a principal may send at once."""

FAILURES_BURST_S: Final = 20.0
"""The same for bad credentials: more, so that who tries some out gets a 401 for each."""

PUBLIC_BURST_S: Final = 10.0
"""The same for requests that need no credential."""

_IPV6_NETWORK_BITS: Final = 64
"""Whoever has one IPv6 address has so many that the network counts as one."""

_SOON_S: Final = 1.0
"""When to come back where it is open when a slot will be free, in seconds."""


class Limited(StrEnum):
    """What is limited, as the metric ``rate_limited_total`` names it."""

    READS = "reads"
    ALTERATIONS = "alterations"
    AT_ONCE = "at_once"
    ENTITIES = "entities"
    STREAMS = "streams"
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
        streams_at_once: Answers that do not end, for each principal.
        max_streams: The same of all.
    """

    reads_per_s: float
    alterations_per_s: float
    requests_at_once: int
    failures_per_s: float
    public_per_s: float = 0.0
    streams_at_once: int = 0
    max_streams: int = 0


class Shares:
    """How much each name has in progress; who has nothing may begin with any number.

    Args:
        most: So much a name may have; 0 for no limit.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, name: str, number: int) -> Callable[[], None] | None:
        """Add to what a name has; return what takes it off, once, or null where it is too much."""
        taken = self._taken[name]
        if self.most and taken and taken + number > self.most:
            return None
        self._taken[name] += number
        return partial(_count_down, self._taken, name, number)


class Turn(Enum):
    """What waits for its turn where as much of it goes on as there may be."""

    READ = auto()
    BODY = auto()
    LARGE_BODY = auto()
    VERY_LARGE_BODY = auto()


MOST_AT_A_TIME: Final[Mapping[Turn, int]] = {
    Turn.READ: 2,  # of a principal, for which entities are looked through
    Turn.BODY: 1,  # of a principal, of those that need a slot
    Turn.LARGE_BODY: 4,  # of all
    Turn.VERY_LARGE_BODY: 3,  # of all; at the least rate of bodies others hold a slot for 6 s
}


class Turns:
    """Lets as many of each name go on at a time as there may be; the others wait."""

    def __init__(self) -> None:
        self._semaphores: WeakValueDictionary[tuple[Turn, str], asyncio.Semaphore]
        self._semaphores = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, turn: Turn, name: str = "") -> AsyncIterator[None]:
        """Wait for a turn of the name, and have it until the block ends."""
        semaphore = asyncio.Semaphore(MOST_AT_A_TIME[turn])
        async with self._semaphores.setdefault((turn, name), semaphore):
            yield


class BodySlot(AsyncExitStack):
    """Taken by a body of a principal once it proves to be large; held until it is parsed.

    A principal's own bodies come one after the other.
    """

    def __init__(self, turns: Turns, principal: str) -> None:
        super().__init__()
        self._turns = turns
        self._principal = principal

    async def take(self, *, very_large: bool) -> None:
        """Wait for the slot."""
        size = Turn.VERY_LARGE_BODY if very_large else Turn.LARGE_BODY
        await self.enter_async_context(self._turns.of(Turn.BODY, self._principal))
        await self.enter_async_context(self._turns.of(size))


class RateLimits:
    """Keeps count, refuses with ``RateLimitedError``; ``turns`` are waited for.

    ``count`` is called with the limit that was reached.
    """

    def __init__(
        self,
        limits: Limits,
        count: Callable[[str], None] = lambda _limit: None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._count = count
        self._now = now
        self._buckets = {
            Limited.READS: TokenBuckets(limits.reads_per_s, BURST_S),
            Limited.ALTERATIONS: TokenBuckets(limits.alterations_per_s, BURST_S),
            Limited.FAILURES: TokenBuckets(limits.failures_per_s, FAILURES_BURST_S),
            Limited.PUBLIC: TokenBuckets(limits.public_per_s, PUBLIC_BURST_S),
        }
        self._texts_of_metrics = TokenBuckets(1.0, PUBLIC_BURST_S)
        self._shares = {
            **_in_progress(limits),
            Limited.STREAMS: Shares(limits.streams_at_once),
        }
        self._streams = Shares(limits.max_streams)
        self.turns = Turns()

    def of_cluster(self) -> Self:
        """Return the same limits with own counts of what is in progress.

        Whoever waits for a cluster that does not answer may go on with the others.
        """
        own = copy(self)
        vars(own)["_shares"] = {**self._shares, **_in_progress(self._limits)}
        return own

    def admit(self, principal: str, kind: Limited) -> None:
        """Count a request."""
        self._take(kind, principal, principal, f"{kind} a second")

    def admit_failure(self, address: str) -> None:
        """Count a refused credential."""
        self._take(
            Limited.FAILURES, network_of(address), "This address", "bad credentials a second"
        )

    def admit_public(self, address: str, route: str) -> None:
        """Count a request that needs no credential; one route takes nothing from another."""
        name = f"{network_of(address)} {route}"
        self._take(Limited.PUBLIC, name, "This address", f"requests a second for {route}")

    def _take(self, kind: Limited, name: str, sender: str, what: str) -> None:
        buckets = self._buckets[kind]
        if wait_s := buckets.take(name, self._now()):
            detail = f"{sender} sends more than {buckets.rate_per_s:g} {what}."
            raise self._refusal(kind, detail, wait_s)

    def may_write_metrics(self) -> bool:
        """Tell whether their text may be written anew: once a second, after ten times at once.

        Else whoever asks gets the text of the time before: no credential is needed to ask.
        """
        return self._texts_of_metrics.take("", self._now()) == 0

    def begin(self, principal: str) -> Callable[[], None]:
        """Count a request as being worked on; return what ends that, once."""
        return self._share(Limited.AT_ONCE, principal, 1, "requests at once")

    def begin_stream(self, principal: str, held: ExitStack) -> None:
        """Count an answer that does not end, until the end of ``held``.

        Raises:
            RateLimitedError: The principal has as many as it may.
            NotSentError: All together have.
        """
        held.callback(self._share(Limited.STREAMS, principal, 1, "streams at once"))
        end = self._streams.take("", 1)
        if end is None:
            self._count(Limited.STREAMS.value)
            detail = f"There are {self._streams.most} streams; come back after Retry-After."
            raise NotSentError(detail, code="too-many-streams", retry_after_s=_SOON_S)
        held.callback(end)

    @contextmanager
    def entities(self, principal: str, number: int) -> Iterator[None]:
        """Count the entities of a request as in progress until the block ends.

        A principal has as many in progress as one request may have. Requests of fewer than ``MANY``
        pass uncounted, and so does one that has no other beside it.
        """
        if number < MANY:
            yield
            return
        end = self._share(Limited.ENTITIES, principal, number, "entities in progress")
        try:
            yield
        finally:
            end()

    def _share(self, kind: Limited, principal: str, number: int, what: str) -> Callable[[], None]:
        end = self._shares[kind].take(principal, number)
        if end is None:
            detail = f"{principal} would have more than {self._shares[kind].most} {what}."
            raise self._refusal(kind, detail, _SOON_S)
        return end

    def _refusal(self, kind: Limited, detail: str, wait_s: float) -> RateLimitedError:
        self._count(kind.value)
        return RateLimitedError(f"{detail} Come back after Retry-After.", retry_after_s=wait_s)


def _in_progress(limits: Limits) -> Mapping[Limited, Shares]:
    return {
        Limited.AT_ONCE: Shares(limits.requests_at_once),
        Limited.ENTITIES: Shares(MAX_CHANGES),
    }


def _count_down(numbers: Counter[T], name: T, number: int = 1) -> None:
    """Count less; zeros are not stored."""
    numbers[name] -= number
    if not numbers[name]:
        del numbers[name]


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


MOST_FAILURES: Final = 5
"""So many wrong passwords one address may send for one user ..."""

WITHIN_S: Final = 60.0
"""... in so many seconds."""

MOST_OF_ADDRESS: Final = 100
"""So many one address may send for all users in that time."""

MOST_PENDING: Final = 8
"""So many logins of one address may be pending, of the 64 that there may be of all."""

MOST_REMEMBERED: Final = 10_000
"""So many pairs of user and address are counted. None is forgotten before its time: where there are
so many, users that are not among them cannot log in."""

Failures = OrderedDict[bytes, list[float]]
"""When they were, by digest, in the order of the last attempts."""

_DIGEST_BYTES: Final = 16
_LOGIN_SOON_S: Final = 1.0


class LoginAttempts:
    """Counts failed logins for each user and address, and for each address, in this process.

    An attempt counts as failed from its beginning on, until it has succeeded: concurrent attempts
    do not pass the limit. Names are not stored, only a keyed digest of each.
    """

    def __init__(
        self, count: Callable[[], None] = lambda: None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._now = now
        self._key = secrets.token_bytes(_DIGEST_BYTES)
        self._failures: Failures = OrderedDict()
        self._of_address: Failures = OrderedDict()
        self._pending: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._failures)

    @contextmanager
    def attempt(self, user: str, address: str) -> Iterator[None]:
        """Count the login in the block as failed, unless it succeeds or nobody could be asked.

        Raises:
            RateLimitedError: One too many; its ``retry_after_s`` says when there may be another.
        """
        now, network = self._now(), network_of(address)
        self._forget(now)
        whole, pair = self._digest(network), self._digest(f"{network} {user}")
        if self._pending[whole] >= MOST_PENDING:
            self._refuse(f"{MOST_PENDING} logins from this address are running.", _LOGIN_SOON_S)
        counted = (
            (self._failures, pair, MOST_FAILURES, "of this user from this address"),
            (self._of_address, whole, MOST_OF_ADDRESS, "from this address"),
        )
        for failures, key, most, whose in counted:
            times = _recent(failures, key, now)
            if len(times) >= most:
                detail = f"{most} logins {whose} failed in a minute."
                self._refuse(detail, times[0] + WITHIN_S - now)
        if pair not in self._failures and len(self._failures) >= MOST_REMEMBERED:
            self._refuse("Too many logins of other users failed within a minute.", WITHIN_S)
        for failures, key, *_ in counted:
            failures.setdefault(key, []).append(now)
            failures.move_to_end(key)
        self._pending[whole] += 1
        try:
            yield
        except NotSentError:
            self._take_back(pair, whole, now)
            raise
        else:
            self._take_back(pair, whole, now)
        finally:
            _count_down(self._pending, whole)

    def _take_back(self, pair: bytes, whole: bytes, at: float) -> None:
        for counts, key in ((self._failures, pair), (self._of_address, whole)):
            times = counts.get(key)
            if times is not None and at in times:
                times.remove(at)
                if not times:
                    del counts[key]

    def _forget(self, now: float) -> None:
        """Forget failures that are over; counts are in the order of their last attempts."""
        for counts in (self._failures, self._of_address):
            while counts:
                oldest = next(iter(counts.values()))
                if oldest and oldest[-1] > now - WITHIN_S:
                    break
                counts.popitem(last=False)

    def _digest(self, text: str) -> bytes:
        return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES, key=self._key).digest()

    def _refuse(self, detail: str, wait_s: float) -> NoReturn:
        self._count()
        raise RateLimitedError(detail, retry_after_s=wait_s)


def _recent(counts: Failures, key: bytes, now: float) -> list[float]:
    times = counts.get(key, [])
    while times and times[0] <= now - WITHIN_S:
        times.pop(0)
    return times
