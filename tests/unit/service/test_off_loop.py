"""Large requests are worked on in a thread, small ones where they are."""

import threading
from decimal import Decimal
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration, Op, Overall
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import InvalidRequestError
from app.service.alterations import alter
from app.service.off_loop import MANY, off_loop
from app.service.reading import resolve
from app.service.reading.resolve import Identity, ResolveQuery, ResolveQuotas
from tests.testkit.fake_ports import FakeBrokers, FakeImage
from tests.unit.service.alter_world import World


class NoCallbacks:
    async def custom_callback(self) -> str | None:
        return None


class Watched:
    """A function that remembers whether it ran in the thread of the event loop."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.on_the_loop: list[bool] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.on_the_loop.append(threading.current_thread() is threading.main_thread())
        return self.function(*args, **kwargs)


def setting(number: int, value: int = 5) -> tuple[ClientQuotaAlteration, ...]:
    ops = (Op("producer_byte_rate", Decimal(value)),)
    return tuple(
        ClientQuotaAlteration(ClientQuotaEntity.of({"user": f"user-{each}"}), ops)
        for each in range(number)
    )


async def test_only_work_on_many_items_leaves_the_event_loop():
    watched = Watched(len)
    assert [await off_loop(number, watched, "abc") for number in (0, MANY - 1, MANY)] == [3, 3, 3]
    assert watched.on_the_loop == [True, True, False]


async def test_an_error_comes_back_from_the_thread():
    with pytest.raises(ZeroDivisionError):
        await off_loop(MANY, divmod, 1, 0)


@pytest.mark.parametrize(("number", "on_the_loop"), [(1, True), (2 * MANY, False)])
async def test_a_large_alteration_is_judged_off_the_loop(
    monkeypatch: pytest.MonkeyPatch, number: int, on_the_loop: bool
):
    watched = Watched(alter.judge)
    monkeypatch.setattr(alter, "judge", watched)
    world = World()
    report = await world.alter(*setting(number))
    assert (report.overall, len(report.results)) == (Overall.APPLIED, number)
    assert len(world.brokers.quotas) == number
    assert watched.on_the_loop == [on_the_loop]


async def test_a_large_alteration_is_refused_with_all_its_violations():
    with pytest.raises(InvalidRequestError) as caught:
        await World().alter(*setting(2 * MANY, value=-1))
    assert len(caught.value.violations) == 2 * MANY


@pytest.mark.parametrize(("number", "on_the_loop"), [(1, True), (2 * MANY, False)])
async def test_a_large_what_if_is_worked_out_off_the_loop(
    monkeypatch: pytest.MonkeyPatch, number: int, on_the_loop: bool
):
    watched = Watched(resolve.judge)
    monkeypatch.setattr(resolve, "judge", watched)
    identities = tuple(Identity(user=f"user-{each}") for each in range(number))
    resolving = ResolveQuotas(FakeImage(FakeBrokers([])), NoCallbacks())
    answer = await resolving.resolve(ResolveQuery(identities, setting(number)))
    assert answer.proposed is not None
    assert [len(answer.resolutions), len(answer.proposed)] == [number, number]
    assert watched.on_the_loop == [on_the_loop]
