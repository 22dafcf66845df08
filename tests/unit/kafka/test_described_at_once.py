"""Entries that are read at once are those that are read one by one."""

from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.entities import ClientQuotaEntity
from app.kafka.described_all import DescribedAll
from app.kafka.described_at_once import cut_at_once, read_at_once
from app.kafka.described_layout import UnusualError, entries_of, entry_of
from app.kafka.messages import read_described
from tests.unit.kafka.test_described_all import Stored, outcome
from tests.unit.kafka.test_reader import comparable, described_bytes

NAMES = (
    st.none()
    | st.sampled_from(["", "a", "a,b", "<default>", "\x7f", "ä" * 63, "n" * 126, "n" * 127])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.integers(120, 410).map("x".__mul__)
)
KINDS = st.sampled_from(["user", "client-id", "ip"])
KEYS = st.sampled_from(
    ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate"]
)
ENTITIES = st.dictionaries(KINDS, NAMES, min_size=1, max_size=2).map(ClientQuotaEntity.of)
QUOTAS = st.dictionaries(ENTITIES, st.dictionaries(KEYS, st.floats(), max_size=4), max_size=8)

A = ClientQuotaEntity.of({"user": "a", "client-id": None})


def entries(stored: Stored) -> bytes:
    """Return the entries of an answer, of which there are fewer than 127, and nothing else."""
    return described_bytes(stored, 1)[13:-1]


@given(QUOTAS)
@example({A: {}})
@example({ClientQuotaEntity.of({"user": "x" * 400}): {"request_percentage": 1.0}})
def test_they_are_those_of_a_single_reader(stored: Stored):
    raws = list(entries_of(described_bytes(stored, 1)[12:]))
    data = b"".join(raws)
    try:
        cut = cut_at_once(data, 0, len(data))
    except UnusualError:
        assert any(len((name or "").encode()) > 400 for one in stored for _, name in one.entries)
        return
    assert cut == raws
    read = read_at_once(data, 0, len(data))
    assert list(read) == raws
    assert comparable(dict(read.values())) == comparable(dict(map(entry_of, raws)))


@given(QUOTAS, QUOTAS, st.data())
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
