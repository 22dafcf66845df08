import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.domain.errors import NotSentError, UnauthenticatedError
from app.service.auth.sessions import (
    IDLE_S,
    LONGEST_S,
    MOST_LOGINS,
    MOST_SESSIONS,
    SessionLease,
    Sessions,
)
from tests.testkit.event_loops import until, until_quiet
from tests.testkit.virtual_time import in_virtual_time


@dataclass(eq=False)
class Login:
    """A session of one user; ``ended`` tells how it was closed."""

    user: str
    password: str
    is_spoilt: bool = False
    ended: list[bool] = field(default_factory=list)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)

    async def close(self, *, at_once: bool) -> None:
        try:
            if not at_once:
                await self.quiet.wait()
        finally:
            self.ended.append(at_once)


class Brokers:
    """Opens sessions; passwords that begin with ``wrong`` are refused."""

    def __init__(self) -> None:
        self.now = 0.0
        self.opened: list[Login] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def open(self, user: str, password: str) -> Login:
        login = Login(user, password)
        login.quiet.set()
        self.opened.append(login)
        await self.gate.wait()
        if password.startswith("wrong"):
            raise UnauthenticatedError("No.")
        return login


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def sessions(brokers: Brokers) -> Sessions:
    return Sessions(brokers.open, now=lambda: brokers.now)


async def test_callers_with_one_password_share_one_login(
    sessions: Sessions, brokers: Brokers
) -> None:
    brokers.gate.clear()
    waiting = [asyncio.create_task(sessions.lease("alice", "secret")) for _ in range(20)]
    await until(lambda: brokers.opened)
    brokers.gate.set()
    leases = await asyncio.gather(*waiting)
    assert {id(lease.content) for lease in leases} == {id(brokers.opened[0])}
    assert len(brokers.opened) == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("alice", "secret"), ("alice", "Secret")),
        (("alice", "secret"), ("bob", "secret")),
        (("ab", "c"), ("a", "bc")),
        (("a", "b:c"), ("a:b", "c")),
        (("a", "ü"), ("a", "u\u0308")),
    ],
)
async def test_a_session_is_never_that_of_other_credentials(
    sessions: Sessions, left: tuple[str, str], right: tuple[str, str]
) -> None:
    first, second = await sessions.lease(*left), await sessions.lease(*right)
    assert (first.content.user, first.content.password) == left
    assert (second.content.user, second.content.password) == right
    assert (await sessions.lease(*left)).content is first.content


async def test_a_refused_login_is_everybodys_who_waited_for_it_and_is_forgotten(
    sessions: Sessions, brokers: Brokers
) -> None:
    brokers.gate.clear()
    waiting = [asyncio.create_task(sessions.lease("alice", "wrong")) for _ in range(3)]
    await until(lambda: brokers.opened)
    assert sessions.has("alice", "wrong")
    brokers.gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(result) for result in results} == {UnauthenticatedError}
    assert not sessions.has("alice", "wrong")
    assert len(sessions) == 0


async def test_no_object_of_the_pool_holds_a_password(sessions: Sessions) -> None:
    lease = await sessions.lease("alice", "canary-in-the-pool")
    text = f"{vars(sessions)} {[vars_of(entry) for entry in sessions._entries.values()]}"
    assert "canary" not in text.replace(repr(lease.content), "")


def vars_of(entry: Any) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__slots__ if name != "task"}


async def test_the_session_that_was_unused_for_longest_is_evicted(
    sessions: Sessions, brokers: Brokers
) -> None:
    held = await sessions.lease("held", "secret")
    for number in range(3 * MOST_SESSIONS):
        (await sessions.lease(f"user-{number}", "secret")).release()
        assert len(sessions) <= MOST_SESSIONS
    await until(lambda: sum(bool(item.ended) for item in brokers.opened) == 2 * MOST_SESSIONS + 1)
    assert held.content.ended == []
    assert sessions.has("held", "secret")
    assert sessions.has(f"user-{3 * MOST_SESSIONS - 1}", "secret")
    assert not sessions.has("user-0", "secret")


async def test_a_session_in_use_is_never_evicted(sessions: Sessions) -> None:
    leases: list[SessionLease] = [
        await sessions.lease(f"user-{number}", "secret") for number in range(MOST_SESSIONS)
    ]
    with pytest.raises(NotSentError) as caught:
        await sessions.lease("one-more", "secret")
    assert caught.value.code == "too-many-sessions"
    assert all(lease.content.ended == [] for lease in leases)
    leases[7].release()
    await sessions.lease("one-more", "secret")
    assert not sessions.has("user-7", "secret")


async def test_callers_without_a_good_password_end_no_session(
    sessions: Sessions, brokers: Brokers
) -> None:
    for number in range(MOST_SESSIONS):
        (await sessions.lease(f"user-{number}", "secret")).release()
    brokers.gate.clear()
    trying = [asyncio.create_task(sessions.lease(f"x-{n}", "wrong")) for n in range(1000)]
    await until(lambda: sum(item.done() for item in trying) == 1000 - MOST_LOGINS)
    refused = [item.exception() for item in trying if item.done()]
    assert {getattr(error, "code", None) for error in refused} == {"too-many-sessions"}
    brokers.gate.set()
    await asyncio.gather(*trying, return_exceptions=True)
    assert all(sessions.has(f"user-{number}", "secret") for number in range(MOST_SESSIONS))
    assert len(sessions) == MOST_SESSIONS


async def test_a_session_beyond_the_limit_is_used_once(
    sessions: Sessions, brokers: Brokers
) -> None:
    held = [await sessions.lease(f"user-{n}", "secret") for n in range(MOST_SESSIONS - 1)]
    brokers.gate.clear()
    late = [asyncio.create_task(sessions.lease(f"late-{n}", "secret")) for n in range(2)]
    await until(lambda: len(brokers.opened) == MOST_SESSIONS + 1)
    brokers.gate.set()
    leases = await asyncio.gather(*late)
    assert len(sessions) == MOST_SESSIONS
    assert [lease.content.ended for lease in [*held, *leases]] == [[]] * (MOST_SESSIONS + 1)
    for lease in leases:
        lease.release()
    await until(lambda: [item for item in leases if item.content.ended])
    assert sum(sessions.has(f"late-{n}", "secret") for n in range(2)) == 1


@in_virtual_time
async def test_a_session_rests_for_a_minute_and_ends(sessions: Sessions) -> None:
    lease = await sessions.lease("alice", "secret")
    lease.release()
    lease.release()
    await asyncio.sleep(IDLE_S - 1)
    assert lease.content.ended == []
    await asyncio.sleep(2)
    assert lease.content.ended == [False]
    assert not sessions.has("alice", "secret")


async def test_an_old_session_is_not_taken_again_and_not_cut(
    sessions: Sessions, brokers: Brokers
) -> None:
    old = await sessions.lease("alice", "secret")
    brokers.now = LONGEST_S + 1
    assert not sessions.has("alice", "secret")
    new = await sessions.lease("alice", "secret")
    assert new.content is not old.content
    assert old.content.ended == []
    old.release()
    await until(lambda: old.content.ended)
    assert new.content.ended == []


async def test_a_session_whose_password_was_refused_later_is_not_taken_again(
    sessions: Sessions,
) -> None:
    lease = await sessions.lease("alice", "secret")
    lease.content.is_spoilt = True
    assert (await sessions.lease("alice", "secret")).content is not lease.content


async def test_what_goes_on_in_a_session_is_waited_for_until_everything_is_closed(
    sessions: Sessions, brokers: Brokers
) -> None:
    running = await sessions.lease("alice", "secret")
    running.content.quiet.clear()
    brokers.now = LONGEST_S + 1
    young = await sessions.lease("alice", "secret")
    running.release()
    await until_quiet()
    assert running.content.ended == []
    async with asyncio.timeout(30):
        await sessions.close()
    assert running.content.ended[-1] is True
    assert young.content.ended == [True]
    with pytest.raises(NotSentError):
        await sessions.lease("bob", "secret")
