import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import AlterClientQuotasResponse, DescribeClientQuotasResponse

from app.domain.alterations import Outcome
from app.domain.entities import ClientQuotaEntity
from app.kafka.messages import read_described, read_verdicts
from app.kafka.reader import Reader, UnreadableAnswerError

names = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
entities = st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), names, min_size=1)
values = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.floats(), max_size=4
)
quotas = st.dictionaries(entities.map(ClientQuotaEntity.of), values, max_size=5)
versions = st.sampled_from([0, 1])


def with_header(body: Any, version: int) -> bytes:
    """Put a correlation id, and in flexible versions no tagged fields, before the body."""
    return struct.pack(">i", 7) + (b"\0" if version else b"") + bytes(body)


def described_bytes(quotas: dict[ClientQuotaEntity, dict[str, float]], version: int) -> bytes:
    entry = DescribeClientQuotasResponse.EntryData
    answer = DescribeClientQuotasResponse(
        throttle_time_ms=5,
        error_code=0,
        error_message=None,
        entries=[
            entry(
                entity=[
                    entry.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.entries
                ],
                values=[entry.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in quotas.items()
        ],
    )
    return with_header(answer.encode(version=version), version)


def verdict_bytes(answers: list[tuple[ClientQuotaEntity, int, str | None]], version: int) -> bytes:
    entry = AlterClientQuotasResponse.EntryData
    answer = AlterClientQuotasResponse(
        throttle_time_ms=5,
        entries=[
            entry(
                error_code=code,
                error_message=text,
                entity=[
                    entry.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.entries
                ],
            )
            for entity, code, text in answers
        ],
    )
    return with_header(answer.encode(version=version), version)


def comparable(quotas: Any) -> Any:
    """NaN is not equal to itself; its bytes are."""
    return {
        entity: {key: struct.pack(">d", value) for key, value in values.items()}
        for entity, values in quotas.items()
    }


@given(quotas, versions)
def test_what_kafka_python_writes_is_read_back_entirely(
    quotas: dict[ClientQuotaEntity, dict[str, float]], version: int
):
    answer = read_described(described_bytes(quotas, version), version)
    assert answer.error_code == 0
    assert answer.throttle_time_ms == 5
    assert comparable(answer.quotas) == comparable(quotas)


@given(quotas, versions, st.data())
def test_an_answer_that_is_cut_short_is_never_read(
    quotas: dict[ClientQuotaEntity, dict[str, float]], version: int, data: st.DataObject
):
    whole = described_bytes(quotas, version)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(UnreadableAnswerError):
        read_described(whole[:cut], version)


@given(quotas, versions, st.binary(min_size=1, max_size=8))
def test_an_answer_with_bytes_left_over_is_never_read(
    quotas: dict[ClientQuotaEntity, dict[str, float]], version: int, surplus: bytes
):
    with pytest.raises(UnreadableAnswerError):
        read_described(described_bytes(quotas, version) + surplus, version)


@given(st.binary(max_size=200), versions)
def test_arbitrary_bytes_are_read_or_refused_in_one_way(noise: bytes, version: int):
    for read in (
        lambda: read_described(noise, version),
        lambda: read_verdicts(noise, version, validate_only=False),
    ):
        try:
            read()
        except UnreadableAnswerError:
            continue


def test_a_success_without_entries_is_no_answer():
    nothing = DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=0, error_message=None, entries=None
    )
    with pytest.raises(UnreadableAnswerError):
        read_described(with_header(nothing.encode(version=1), 1), 1)


def test_a_length_that_never_ends_is_refused_at_its_sixth_byte():
    with pytest.raises(UnreadableAnswerError, match="longer than five"):
        Reader(b"\x80" * 1_000_000, flexible=True).string()


def test_more_elements_than_bytes_are_refused_before_they_are_read():
    with pytest.raises(UnreadableAnswerError, match="elements"):
        Reader(struct.pack(">i", 2**31 - 1), flexible=False).array(Reader.int16)


def test_null_empty_and_the_text_default_stay_three_different_names():
    stored = {
        ClientQuotaEntity.of({"user": name}): {"request_percentage": math.inf}
        for name in (None, "", "<default>")
    }
    assert read_described(described_bytes(stored, 1), 1).quotas == stored


@pytest.mark.parametrize("version", [0, 1])
def test_verdicts_are_found_by_entity_whatever_their_order(version: int):
    one, two = (ClientQuotaEntity.of({"user": name, "client-id": None}) for name in "ab")
    raw = verdict_bytes([(two, 42, "no"), (one, 0, None)], version)
    verdicts = read_verdicts(raw, version, validate_only=False)
    assert verdicts[one].outcome is Outcome.APPLIED
    assert verdicts[two].outcome is Outcome.REFUSED
    assert verdicts[two].error is not None
    assert verdicts[two].error.kafka_error == "INVALID_REQUEST"
    assert verdicts[two].error.message == "no"
    assert verdicts[two].throttle_time_ms == 5


def test_an_entity_that_is_answered_in_two_ways_is_unknown():
    one = ClientQuotaEntity.of({"user": "a"})
    raw = verdict_bytes([(one, 0, None), (one, 42, "duplicate")], 1)
    assert read_verdicts(raw, 1, validate_only=False)[one].outcome is Outcome.UNKNOWN
