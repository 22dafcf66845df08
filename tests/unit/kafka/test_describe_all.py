"""The decoder of everything reports what the strict reader reports, and what has changed since."""

import asyncio
import gc
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.domain.entities import ClientQuotaEntity
from app.kafka import describe_all
from app.kafka.describe_all import DescribedAll
from app.kafka.quota_messages import UnreadableAnswerError, read_described
from tests.unit.kafka.test_quota_messages import comparable, described_bytes

LONG_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
KINDS = st.sampled_from(["user", "client-id", "ip", "of another time"]) | LONG_TEXT
KEYS = st.sampled_from(["producer_byte_rate", "request_percentage", "a key of others"]) | LONG_TEXT
ENTITIES = st.dictionaries(KINDS, st.none() | LONG_TEXT, max_size=3).map(ClientQuotaEntity.of)
QUOTAS = st.dictionaries(ENTITIES, st.dictionaries(KEYS, st.floats(), max_size=4), max_size=6)

Stored = dict[ClientQuotaEntity, dict[str, float]]


def user(name: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({"user": name})


def decode(decoder: DescribedAll, raw: bytes | bytearray, version: int = 1) -> Any:
    """Read a response without an event loop: each step ends by itself."""
    reading = decoder.read(raw, version)
    while True:
        try:
            reading.send(None)
        except StopIteration as ended:
            return ended.value


def read(decoder: DescribedAll, stored: Stored, version: int = 1) -> Any:
    answer, changes = decode(decoder, bytearray(described_bytes(stored, version)), version)
    return answer.quotas, changes


def response(*entries: bytes) -> bytes:
    return described_bytes({}, 1)[:12] + bytes([len(entries) + 1]) + b"".join(entries) + b"\0"


@given(QUOTAS, st.sampled_from([0, 1]))
def test_it_reads_what_the_strict_reader_reads(stored: Stored, version: int):
    quotas, changes = read(DescribedAll(), stored, version)
    assert comparable(quotas) == comparable(stored)
    assert changes is None


@given(st.lists(QUOTAS, min_size=2, max_size=5))
def test_changes_lead_from_an_earlier_answer_to_this_answer(worlds: list[Stored]):
    decoder = DescribedAll()
    earlier = []
    for stored in worlds:
        quotas, changes = read(decoder, stored)
        assert comparable(quotas) == comparable(stored)
        if changes is not None:
            (base,) = [item for item in earlier if item is changes.base]
            patched = {**base, **changes.changed}
            filled = {key: values for key, values in patched.items() if values or key in stored}
            assert comparable(filled) == comparable(stored)
        if not any(item is quotas for item in earlier):
            earlier.append(quotas)


def test_the_same_bytes_are_the_same_object():
    decoder = DescribedAll()
    stored: Stored = {user("a"): {"producer_byte_rate": 1.0}, user(None): {}}
    quotas, _ = read(decoder, stored)
    again, changes = read(decoder, stored)
    assert again is quotas
    assert changes is None


def test_the_empty_message_that_brokers_send_is_no_message():
    decoder = DescribedAll()
    raw = described_bytes({user("a"): {"producer_byte_rate": 1.0}}, 1)
    raw = raw[:11] + b"\1" + raw[12:]
    answers = [decode(decoder, raw)[0] for _ in range(2)]
    assert answers[0].quotas is answers[1].quotas
    assert answers[0] == read_described(raw, 1)


def test_another_order_is_no_change():
    decoder = DescribedAll()
    stored: Stored = {user(name): {"producer_byte_rate": 1.0} for name in "abc"}
    quotas, _ = read(decoder, stored)
    again, changes = read(decoder, dict(reversed(stored.items())))
    assert again is quotas
    assert changes is None


def test_what_has_not_changed_is_not_read_again():
    decoder = DescribedAll()
    stored: Stored = {user(name): {"producer_byte_rate": 1.0} for name in "abc"}
    quotas, _ = read(decoder, stored)
    again, changes = read(decoder, {**stored, user("b"): {"producer_byte_rate": 2.0}})
    assert again[user("a")] is quotas[user("a")]
    assert changes.changed == {user("b"): {"producer_byte_rate": 2.0}}
    _, changes = read(decoder, {user("a"): {"producer_byte_rate": 1.0}})
    assert changes.changed == {user("b"): {}, user("c"): {}}


def outcome(work: Any) -> Any:
    try:
        answer = work()
    except UnreadableAnswerError:
        return None
    quotas = None if answer.quotas is None else comparable(answer.quotas)
    return answer.error_code, answer.error_message, answer.throttle_time_ms, quotas


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_judged_by_the_strict_reader(noise: bytes):
    raw = b"\0\0\0\7\0\0\0\0\0\0\0\0" + noise
    assert outcome(lambda: decode(DescribedAll(), raw)[0]) == outcome(
        lambda: read_described(raw, 1)
    )


def test_an_answer_that_cannot_be_read_changes_nothing():
    decoder = DescribedAll()
    stored: Stored = {user("a"): {"producer_byte_rate": 1.0}}
    quotas, _ = read(decoder, stored)
    with pytest.raises(UnreadableAnswerError):
        decode(decoder, described_bytes({user("b"): {}}, 1)[:-1])
    assert read(decoder, stored)[0] is quotas


def test_the_collector_of_garbage_works_again_afterwards(monkeypatch: pytest.MonkeyPatch):
    states = []
    original = describe_all._entry

    def noting(*arguments: Any) -> Any:
        states.append(gc.isenabled())
        return original(*arguments)

    monkeypatch.setattr(describe_all, "_entry", noting)
    read(DescribedAll(), {user("a"): {}})
    assert states == [False]
    assert gc.isenabled()


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1.0, 2.0, 3.0])), max_size=5),
        min_size=2,
        max_size=4,
    )
)
@example([[("a", 1.0), ("a", 2.0)], [("a", 2.0), ("a", 1.0)]])
@example([[("a", 1.0)], [("a", 1.0), ("a", 2.0)], [("a", 2.0), ("a", 1.0)]])
@example([[("b", 1.0), ("a", 2.0)], [("a", 1.0), ("a", 2.0)], [("a", 2.0), ("a", 1.0)]])
def test_an_entity_that_stands_twice_has_the_values_that_come_last(
    turns: list[list[tuple[str, float]]],
):
    decoder = DescribedAll()
    for turn in turns:
        entries = [
            described_bytes({user(name): {"producer_byte_rate": value}}, 1)[13:-1]
            for name, value in turn
        ]
        raw = response(*entries)
        answer, changes = decode(decoder, raw)
        assert answer == read_described(raw, 1)
        if changes is not None:
            cached = {**changes.base, **changes.changed}
            assert {key: values for key, values in cached.items() if values} == answer.quotas


NAMES = (
    st.none()
    | st.sampled_from(["", "a", "a,b", "<default>", "\x7f", "ä" * 63, "n" * 126, "n" * 127])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.integers(120, 512).map("x".__mul__)
)
USUAL_KINDS = st.sampled_from(["user", "client-id", "ip"])
USUAL_KEYS = st.sampled_from(
    ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate"]
)
USUAL_ENTITIES = st.dictionaries(USUAL_KINDS, NAMES, min_size=1, max_size=2).map(
    ClientQuotaEntity.of
)
USUAL_QUOTAS = st.dictionaries(
    USUAL_ENTITIES, st.dictionaries(USUAL_KEYS, st.floats(), max_size=4), max_size=8
)

A = ClientQuotaEntity.of({"user": "a", "client-id": None})


@pytest.fixture
def strictly(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return what goes to the strict reader."""
    judged: list[bytes] = []

    def noting(payload: bytes, version: int) -> Any:
        judged.append(bytes(payload))
        return read_described(payload, version)

    monkeypatch.setattr(describe_all, "read_described", noting)
    return judged


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(USUAL_QUOTAS)
@example({A: {}})
@example({ClientQuotaEntity.of({"user": "x" * 512}): {"request_percentage": 1.0}})
@example({ClientQuotaEntity.of({"of another time": "x"}): {"a key of others": 1.0}})
@example({ClientQuotaEntity.of({"user": "a\0b", "ip": "\0"}): {}, A: {}})
@example({A: {f"key {number}": number + 0.5 for number in range(8)}})
def test_what_brokers_send_is_not_left_to_the_strict_reader(strictly: list[bytes], stored: Stored):
    quotas, _ = read(DescribedAll(), stored)
    assert comparable(quotas) == comparable(stored)
    assert strictly == []


@given(USUAL_QUOTAS, USUAL_QUOTAS | QUOTAS, st.data())
def test_what_is_cut_or_altered_is_judged_by_the_strict_reader(
    before: Stored, stored: Stored, data: st.DataObject
):
    raw = bytearray(described_bytes(stored, 1))
    position = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw = raw[:position]
    else:
        raw[position] = data.draw(st.integers(0, 255))
    decoder = DescribedAll()
    decode(decoder, described_bytes(before, 1))
    judged = outcome(lambda: read_described(raw, 1))
    assert outcome(lambda: decode(decoder, raw)[0]) == judged
    assert outcome(lambda: decode(DescribedAll(), raw)[0]) == judged


def test_equal_values_are_one_object():
    stored: Stored = {user(name): {"producer_byte_rate": 1.5} for name in "abc"}
    quotas, _ = read(DescribedAll(), stored)
    (cached,) = {id(values) for values in quotas.values()}
    assert cached


def test_types_may_come_in_any_order():
    types = [b"\5user\2a\0", b"\x0aclient-id\2b\0"]
    for order in permutations(types):
        quotas = decode(DescribedAll(), response(b"\3" + b"".join(order) + b"\1\0"))[0].quotas
        assert quotas == {ClientQuotaEntity.of({"user": "a", "client-id": "b"}): {}}


@pytest.mark.parametrize(
    "data",
    [
        b"\3\5user\2a\0\5user\2a\0\1\0",
        b"\2\5user\2a\0\1\0\0",
        b"\2\1\2a\0\1\0",
        b"\2\5user\2a\0\2\1\0\0\0\0\0\0\0\0\0\0",
        b"\2\5user\2a\1\1\0",
        b"\2\5user\2\xff\0\1\0",
    ],
)
def test_what_brokers_do_not_send_is_left_to_the_strict_reader(strictly: list[bytes], data: bytes):
    raw = response(data)
    judged = outcome(lambda: read_described(raw, 1))
    assert outcome(lambda: decode(DescribedAll(), raw)[0]) == judged
    assert strictly == [raw]


async def test_two_who_read_at_the_same_time_read_one_after_the_other():
    decoder = DescribedAll()
    worlds: list[Stored] = [
        {user(f"u{number}"): {"producer_byte_rate": value} for number in range(600)}
        for value in (1.0, 2.0)
    ]
    await decoder.read(described_bytes(worlds[0], 1), 1)
    (second, changes), (first, back) = await asyncio.gather(
        decoder.read(described_bytes(worlds[1], 1), 1),
        decoder.read(described_bytes(worlds[0], 1), 1),
    )
    assert (first.quotas, second.quotas) == tuple(worlds)
    assert changes is not None
    assert back is not None
    assert changes.changed == worlds[1]
    assert (back.base, back.changed) == (second.quotas, worlds[0])


async def test_others_have_their_turn_while_a_large_response_is_read(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(describe_all, "_BYTES_AT_ONCE", 1000)
    monkeypatch.setattr(describe_all, "_TURN_S", 0.0)  # each step takes a turn
    stored: Stored = {user(f"u{number}"): {"producer_byte_rate": 1.0} for number in range(2500)}
    other = {**stored, user("u7"): {"producer_byte_rate": 2.0}}
    decoder = DescribedAll()
    for world in (stored, stored, other, dict(reversed(other.items())), {}):
        steps = 0
        reading = asyncio.ensure_future(decoder.read(described_bytes(world, 1), 1))
        while not reading.done():
            steps += 1
            await asyncio.sleep(0)
        assert reading.result()[0].quotas == world
        assert steps > 2500 / 100


async def test_what_is_read_in_one_turn_waits_for_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(describe_all, "_TURN_S", 30.0)
    stored: Stored = {user(f"u{number}"): {"producer_byte_rate": 1.0} for number in range(2500)}
    reading = asyncio.ensure_future(DescribedAll().read(described_bytes(stored, 1), 1))
    await asyncio.sleep(0)
    assert reading.done()
    assert reading.result()[0].quotas == stored
