"""Entries that are read at once are what the reader reads step by step."""

from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.entities import ClientQuotaEntity
from app.kafka.altered_entries import AlteredEntry, entries_at_once
from app.kafka.messages import _altered_entry
from app.kafka.reader import Reader, UnreadableAnswerError
from tests.unit.kafka.test_reader import verdict_bytes

BEFORE_THE_COUNT = 9
"""Bytes: correlation id, tags of the header, throttle time."""

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=140)
entities = st.dictionaries(
    st.sampled_from(["user", "client-id", "ip", "other"]), st.none() | text, max_size=4
).map(ClientQuotaEntity.of)
answers = st.lists(
    st.tuples(entities, st.sampled_from([0, 7, 42, 300, -1]), st.none() | text), max_size=8
)


def of_one_byte(told: list[tuple[ClientQuotaEntity, int, str | None]]) -> bool:
    """Tell whether every length takes one byte, as those at once must."""
    texts = [
        one for entity, _, message in told for one in (message, *dict(entity.entries).values())
    ]
    return all(len((one or "").encode()) < 127 for one in texts)


def step_by_step(data: bytes) -> list[AlteredEntry] | None:
    reader = Reader(data[BEFORE_THE_COUNT:], flexible=True)
    try:
        entries = reader.array(_altered_entry)
        reader.end_of_structure()
        reader.end()
    except UnreadableAnswerError:
        return None
    return entries


@given(answers)
@example([(ClientQuotaEntity.of({"user": None, "client-id": ""}), 0, "")])
def test_short_entries_are_read_at_once(told: list[tuple[ClientQuotaEntity, int, str | None]]):
    data = verdict_bytes(told, 1)
    read = entries_at_once(data, BEFORE_THE_COUNT + 1, len(told))
    if of_one_byte(told) and all(code >= 0 for _, code, _ in told):
        assert read == (told, len(data) - 1)
    else:
        assert read is None


@given(answers.filter(of_one_byte), st.data())
def test_what_is_damaged_is_read_alike_or_left_to_the_reader(
    told: list[tuple[ClientQuotaEntity, int, str | None]], data: st.DataObject
):
    whole = bytearray(verdict_bytes(told, 1))
    place = data.draw(st.integers(BEFORE_THE_COUNT + 1, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    raw = bytes(whole[: data.draw(st.integers(place, len(whole)))])
    read = entries_at_once(raw, BEFORE_THE_COUNT + 1, len(told))
    if read is not None and raw[read[1] :] == b"\0":
        assert read[0] == step_by_step(raw)


def test_a_type_that_is_there_twice_is_left_to_the_reader():
    twice = b"\0\0" + b"\0" + b"\3" + b"\5user\2a\0" * 2 + b"\0"
    assert entries_at_once(twice, 0, 1) is None
    once = b"\0\0" + b"\0" + b"\2" + b"\5user\2a\0" + b"\0"
    entry = (ClientQuotaEntity.of({"user": "a"}), 0, None)
    assert entries_at_once(once, 0, 1) == ([entry], len(once))
