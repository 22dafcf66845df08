"""Our reader and writer against kafka-python's messages, byte for byte."""

import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome
from app.domain.entities import (
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MatchType,
)
from app.kafka.connection import framed, framed_body
from app.kafka.quota_messages import (
    ALTER_API,
    DESCRIBE_API,
    Reader,
    UnreadableAnswerError,
    alter_body,
    describe_body,
    read_described,
    read_verdicts,
)

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
    entries = [(entity.entries, list(values.items())) for entity, values in quotas.items()]
    answer = DescribeClientQuotasResponse(
        throttle_time_ms=5, error_code=0, error_message=None, entries=entries
    )
    return with_header(answer.encode(version=version), version)


def verdict_bytes(answers: list[tuple[ClientQuotaEntity, int, str | None]], version: int) -> bytes:
    entries = [(code, text, entity.entries) for entity, code, text in answers]
    answer = AlterClientQuotasResponse(throttle_time_ms=5, entries=entries)
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
def test_arbitrary_bytes_are_read_or_are_an_unreadable_answer(noise: bytes, version: int):
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
        Reader(struct.pack(">i", 2**31 - 1), flexible=False).array(Reader.text)


def test_null_empty_and_the_text_default_stay_three_different_names():
    stored = {
        ClientQuotaEntity.of({"user": name}): {"request_percentage": math.inf}
        for name in (None, "", "<default>")
    }
    assert read_described(described_bytes(stored, 1), 1).quotas == stored


@pytest.mark.parametrize("version", [0, 1])
def test_verdicts_are_found_by_entity_whatever_their_order(version: int):
    first, second = (ClientQuotaEntity.of({"user": name, "client-id": None}) for name in "ab")
    raw = verdict_bytes([(second, 42, "no"), (first, 0, None)], version)
    verdicts = read_verdicts(raw, version, validate_only=False)
    assert verdicts[first].outcome is Outcome.APPLIED
    assert verdicts[second].outcome is Outcome.REFUSED
    assert verdicts[second].error is not None
    assert verdicts[second].error.kafka_error == "INVALID_REQUEST"
    assert verdicts[second].error.message == "no"
    assert verdicts[second].throttle_time_ms == 5


def test_an_entity_with_two_different_answers_is_unknown():
    first = ClientQuotaEntity.of({"user": "a"})
    raw = verdict_bytes([(first, 0, None), (first, 42, "duplicate")], 1)
    assert read_verdicts(raw, 1, validate_only=False)[first].outcome is Outcome.UNKNOWN


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
written_entities = st.dictionaries(texts, st.none() | texts, max_size=3).map(ClientQuotaEntity.of)
ops = st.one_of(
    st.builds(Op, texts, st.decimals(allow_nan=False, allow_infinity=False)),
    st.builds(Op, texts, remove=st.just(value=True)),
)
alterations = st.lists(
    st.builds(ClientQuotaAlteration, written_entities, st.lists(ops, max_size=3).map(tuple)),
    max_size=3,
)
components = st.one_of(
    st.builds(ClientQuotaFilterComponent.of_entity, texts, texts),
    st.builds(ClientQuotaFilterComponent.of_default_entity, texts),
    st.builds(ClientQuotaFilterComponent.of_entity_type, texts),
)
filters = st.builds(ClientQuotaFilter, st.lists(components, max_size=3).map(tuple), st.booleans())

MATCH_TYPES = {MatchType.EXACT: 0, MatchType.DEFAULT: 1, MatchType.SPECIFIED: 2}


def alter_request(proposed: list[ClientQuotaAlteration], *, validate_only: bool) -> Any:
    entries = [
        (item.entity.entries, [(op.key, float(op.value or 0), op.remove) for op in item.ops])
        for item in proposed
    ]
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


def describe_request(quota_filter: ClientQuotaFilter) -> Any:
    components = [
        (component.entity_type, MATCH_TYPES[component.match_type], component.match)
        for component in quota_filter.components
    ]
    return DescribeClientQuotasRequest(components=components, strict=quota_filter.strict)


def same_zero(frame: bytes) -> bytes:
    """-0.0 and 0.0 are both no value to remove."""
    return frame.replace(struct.pack(">d", -0.0), struct.pack(">d", 0.0))


@given(alterations, versions, st.booleans())
def test_an_alter_is_written_as_kafka_python_writes_it(
    proposed: list[ClientQuotaAlteration], version: int, validate_only: bool
):
    body = alter_body(proposed, version, validate_only=validate_only)
    expected = framed(alter_request(proposed, validate_only=validate_only), version, 7)
    assert same_zero(framed_body(ALTER_API, version, 7, body)) == same_zero(expected)


@given(filters, versions)
def test_a_describe_is_written_as_kafka_python_writes_it(
    quota_filter: ClientQuotaFilter, version: int
):
    body = describe_body(quota_filter, version)
    expected = framed(describe_request(quota_filter), version, 2**31 - 1)
    assert framed_body(DESCRIBE_API, version, 2**31 - 1, body) == expected


def test_every_width_of_a_length_is_written(subtests: pytest.Subtests):
    for version in [0, 1]:
        for number in [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 32_767]:
            with subtests.test(number=number, version=version):
                entity = ClientQuotaEntity.of({"user": "x" * number})
                proposed = [ClientQuotaAlteration(entity, (Op("k", Decimal(1)),))]
                body = alter_body(proposed, version, validate_only=False)
                expected = framed(alter_request(proposed, validate_only=False), version, 1)
                assert framed_body(ALTER_API, version, 1, body) == expected


def test_many_entries_are_written():
    proposed = [
        ClientQuotaAlteration(ClientQuotaEntity.of({"user": f"u{number}"}), ())
        for number in range(20_000)
    ]
    for version in (0, 1):
        body = alter_body(proposed, version, validate_only=True)
        expected = framed(alter_request(proposed, validate_only=True), version, 1)
        assert framed_body(ALTER_API, version, 1, body) == expected


@pytest.mark.parametrize("version", [0, 1])
def test_half_of_a_surrogate_pair_is_not_written(version: int):
    entity = ClientQuotaEntity.of({"user": "\ud800"})
    with pytest.raises(ValueError, match="surrogates not allowed"):
        alter_body([ClientQuotaAlteration(entity, ())], version, validate_only=False)


def test_a_name_that_version_0_cannot_say_is_not_written():
    entity = ClientQuotaEntity.of({"user": "x" * 32_768})
    with pytest.raises(struct.error):
        alter_body([ClientQuotaAlteration(entity, ())], 0, validate_only=False)
