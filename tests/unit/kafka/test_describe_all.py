"""The decoder of everything reports what the strict reader reports, and what has changed since."""

import gc
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from app.domain.entities import ClientQuotaEntity
from app.kafka import describe_all
from app.kafka.describe_all import DescribedAll, differing_entries
from app.kafka.describe_layout import cut_at_once, entries_of, entry_of, read_at_once
from app.kafka.quota_messages import UnusualError, read_described
from app.kafka.wire import UnreadableAnswerError
from tests.unit.kafka.test_wire import comparable, described_bytes

LONG_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
KINDS = st.sampled_from(["user", "client-id", "ip", "of another time"]) | LONG_TEXT
KEYS = st.sampled_from(["producer_byte_rate", "request_percentage", "a key of others"]) | LONG_TEXT
ENTITIES = st.dictionaries(KINDS, st.none() | LONG_TEXT, max_size=3).map(ClientQuotaEntity.of)
QUOTAS = st.dictionaries(ENTITIES, st.dictionaries(KEYS, st.floats(), max_size=4), max_size=6)

Stored = dict[ClientQuotaEntity, dict[str, float]]


def user(name: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({"user": name})


def read(decoder: DescribedAll, stored: Stored, version: int = 1) -> Any:
    answer, changes = decoder.read(bytearray(described_bytes(stored, version)), version)
    return answer.quotas, changes


@given(QUOTAS, st.sampled_from([0, 1]))
def test_it_reads_what_the_strict_reader_reads(stored: Stored, version: int):
    quotas, changes = read(DescribedAll(), stored, version)
    assert comparable(quotas) == comparable(stored)
    assert changes is None


@given(st.lists(QUOTAS, min_size=2, max_size=5))
def test_changes_lead_from_an_earlier_answer_to_this_one(worlds: list[Stored]):
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
    answers = [decoder.read(raw, 1)[0] for _ in range(2)]
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


@given(QUOTAS, st.data())
def test_bytes_that_are_cut_or_altered_are_judged_by_the_strict_reader(
    stored: Stored, data: st.DataObject
):
    raw = bytearray(described_bytes(stored, 1))
    place = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw = raw[:place]
    else:
        raw[place] = data.draw(st.integers(0, 255))
    assert outcome(lambda: DescribedAll().read(raw, 1)[0]) == outcome(
        lambda: read_described(raw, 1)
    )


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
    assert outcome(lambda: DescribedAll().read(raw, 1)[0]) == outcome(
        lambda: read_described(raw, 1)
    )


def test_an_answer_that_cannot_be_read_changes_nothing():
    decoder = DescribedAll()
    stored: Stored = {user("a"): {"producer_byte_rate": 1.0}}
    quotas, _ = read(decoder, stored)
    with pytest.raises(UnreadableAnswerError):
        decoder.read(described_bytes({user("b"): {}}, 1)[:-1], 1)
    assert read(decoder, stored)[0] is quotas


def test_the_collector_of_garbage_works_again_afterwards(monkeypatch: pytest.MonkeyPatch):
    states = []
    original = describe_all._read

    def noting(*arguments: Any) -> Any:
        states.append(gc.isenabled())
        return original(*arguments)

    monkeypatch.setattr(describe_all, "_read", noting)
    read(DescribedAll(), {user("a"): {}})
    assert states == [False]
    assert gc.isenabled()


class Cluster(RuleBasedStateMachine):
    """Entities come, change and go; the decoder keeps up."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = DescribedAll()
        self.stored: Stored = {}
        self.kept: Mapping[ClientQuotaEntity, Mapping[str, float]] = {}

    @rule(name=st.sampled_from("abcde"), value=st.floats(1, 9))
    def change(self, name: str, value: float) -> None:
        self.stored[user(name)] = {"consumer_byte_rate": value}

    @rule(name=st.sampled_from("abcde"))
    def remove(self, name: str) -> None:
        self.stored.pop(user(name), None)

    @rule()
    def describe(self) -> None:
        quotas, changes = read(self.decoder, self.stored)
        assert quotas == self.stored
        if changes is not None:
            assert changes.base is self.kept
            kept = {**self.kept, **changes.changed}
            assert {key: values for key, values in kept.items() if values} == self.stored
        self.kept = quotas


TestCluster = Cluster.TestCase


NAMED = [f"user-{number:04}" for number in range(400)]


@given(
    st.lists(
        st.dictionaries(st.sampled_from(NAMED), st.sampled_from([0.0, 1.0, 2.5]), max_size=30),
        min_size=1,
        max_size=4,
    )
)
def test_values_that_change_in_their_places_are_found_there(turns: list[dict[str, float]]):
    decoder = DescribedAll()
    stored: Stored = {user(name): {"producer_byte_rate": 7.0} for name in NAMED}
    before, _ = read(decoder, stored)
    for turn in turns:
        stored = {**stored, **{user(name): {"producer_byte_rate": turn[name]} for name in turn}}
        quotas, changes = read(decoder, stored)
        assert comparable(quotas) == comparable(stored)
        differing = {key: values for key, values in quotas.items() if before[key] != values}
        assert (changes.changed if changes else {}) == differing
        before = quotas


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["aa", "b", "c"], ["a", "bb", "c"]),
        (["aa", "b", "c"], ["b", "aa", "c"]),
        (["a", "b", "c"], ["b", "c", "a"]),
        (["a", "b", "c"], ["a", "x", "c"]),
        (["a\0\1", "b"], ["a", "b\0\1"]),
    ],
)
def test_names_that_move_within_the_same_length_are_read_right(first: list[str], second: list[str]):
    decoder = DescribedAll()
    for names in (first, second, first):
        stored: Stored = {user(name): {"request_percentage": 1.0} for name in names}
        quotas, _ = read(decoder, stored)
        assert comparable(quotas) == comparable(stored)


def test_places_are_told_where_few_differ_only():
    before = bytes(20_000)
    starts = [2, 10_000, 15_000, 19_999]
    after = bytearray(before)
    after[10_001] = 1
    assert differing_entries(before, bytes(after), starts) == [
        (before[10_000:15_000], bytes(after[10_000:15_000]))
    ]
    after[1] = 1
    assert differing_entries(before, bytes(after), starts) is None
    assert differing_entries(before, before + b"1", starts) is None
    many = bytes([1]) * 2_000_000
    assert differing_entries(bytes(len(many)), many, [0, len(many)]) is None


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
        raw = described_bytes({}, 1)[:12] + bytes([len(entries) + 1]) + b"".join(entries) + b"\0"
        answer, changes = decoder.read(raw, 1)
        assert answer == read_described(raw, 1)
        if changes is not None:
            kept = {**changes.base, **changes.changed}
            assert {key: values for key, values in kept.items() if values} == answer.quotas


NAMES = (
    st.none()
    | st.sampled_from(["", "a", "a,b", "<default>", "\x7f", "ä" * 63, "n" * 126, "n" * 127])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.integers(120, 410).map("x".__mul__)
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


def entries(stored: Stored) -> bytes:
    """Return the entries of an answer, of which there are fewer than 127, and nothing else."""
    return described_bytes(stored, 1)[13:-1]


@given(USUAL_QUOTAS)
@example({A: {}})
@example({ClientQuotaEntity.of({"user": "x" * 400}): {"request_percentage": 1.0}})
def test_they_are_those_of_a_single_reader(stored: Stored):
    raws = list(entries_of(described_bytes(stored, 1)[12:]))
    data = b"".join(raws)
    try:
        cut = cut_at_once(data, 0, len(data))
    except UnusualError:
        assert any(len((name or "").encode()) > 400 for item in stored for _, name in item.entries)
        return
    assert cut == raws
    read = read_at_once(data, 0, len(data))
    assert list(read) == raws
    assert comparable(dict(read.values())) == comparable(dict(map(entry_of, raws)))


@given(USUAL_QUOTAS, USUAL_QUOTAS, st.data())
def test_what_is_cut_or_altered_is_judged_by_the_strict_reader(
    before: Stored, stored: Stored, data: st.DataObject
):
    raw = bytearray(described_bytes(stored, 1))
    place = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw = raw[:place]
    else:
        raw[place] = data.draw(st.integers(0, 255))
    decoder = DescribedAll()
    decoder.read(described_bytes(before, 1), 1)
    judged = outcome(lambda: read_described(raw, 1))
    assert outcome(lambda: decoder.read(raw, 1)[0]) == judged
    assert outcome(lambda: DescribedAll().read(raw, 1)[0]) == judged


def test_equal_values_are_kept_once():
    stored: Stored = {
        ClientQuotaEntity.of({"user": name}): {"producer_byte_rate": 1.5} for name in "abc"
    }
    data = entries(stored)
    (kept,) = {id(values) for _, values in read_at_once(data, 0, len(data)).values()}
    assert kept


def test_types_may_come_in_any_order():
    parts = [b"\5user\2a\0", b"\x0aclient-id\2b\0"]
    for order in permutations(parts):
        raw = b"\3" + b"".join(order) + b"\1\0"
        ((entity, values),) = read_at_once(raw, 0, len(raw)).values()
        assert entity == ClientQuotaEntity.of({"user": "a", "client-id": "b"})
        assert values == {}


def test_a_name_with_any_character_in_it_is_read():
    stored: Stored = {
        ClientQuotaEntity.of({"user": f"a{character}b"}): {} for character in "\0\n\x7f,"
    }
    data = entries(stored)
    assert dict(read_at_once(data, 0, len(data)).values()) == stored


@pytest.mark.parametrize(
    "data",
    [
        b"\3\5user\2a\0\5user\2a\0\1\0",
        b"\2\5user\2a\0\1\0\0",
        b"\2\5kind\2a\0\1\0",
        b"\2\5user\2a\0\2\4key\0\0\0\0\0\0\0\0\0\0",
        b"\2\5user\2a\1\1\0",
    ],
)
def test_what_brokers_do_not_send_is_not_read(data: bytes):
    with pytest.raises(UnusualError):
        read_at_once(data, 0, len(data))
