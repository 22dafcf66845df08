"""What we write is byte for byte what kafka-python's own messages are."""

import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.entities import ClientQuotaEntity
from app.domain.filters import ClientQuotaFilter, ClientQuotaFilterComponent, MatchType
from app.kafka.messages import ALTER_API, DESCRIBE_API, alter_body, describe_body
from app.kafka.questions import framed, framed_body

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
entities = st.dictionaries(texts, st.none() | texts, max_size=3).map(ClientQuotaEntity.of)
ops = st.one_of(
    st.builds(Op, texts, st.decimals(allow_nan=False, allow_infinity=False)),
    st.builds(Op, texts, remove=st.just(value=True)),
)
alterations = st.lists(
    st.builds(ClientQuotaAlteration, entities, st.lists(ops, max_size=3).map(tuple)), max_size=3
)
components = st.one_of(
    st.builds(ClientQuotaFilterComponent.of_entity, texts, texts),
    st.builds(ClientQuotaFilterComponent.of_default_entity, texts),
    st.builds(ClientQuotaFilterComponent.of_entity_type, texts),
)
filters = st.builds(ClientQuotaFilter, st.lists(components, max_size=3).map(tuple), st.booleans())
versions = st.sampled_from([0, 1])

MATCH_TYPES = {MatchType.EXACT: 0, MatchType.DEFAULT: 1, MatchType.SPECIFIED: 2}


def alter_request(proposed: list[ClientQuotaAlteration], *, validate_only: bool) -> Any:
    entry = AlterClientQuotasRequest.EntryData
    return AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[
                    entry.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in one.entity.entries
                ],
                ops=[
                    entry.OpData(key=op.key, value=float(op.value or 0), remove=op.remove)
                    for op in one.ops
                ],
            )
            for one in proposed
        ],
        validate_only=validate_only,
    )


def describe_request(quota_filter: ClientQuotaFilter) -> Any:
    data = DescribeClientQuotasRequest.ComponentData
    return DescribeClientQuotasRequest(
        components=[
            data(
                entity_type=one.entity_type,
                match_type=MATCH_TYPES[one.match_type],
                match=one.match,
            )
            for one in quota_filter.components
        ],
        strict=quota_filter.strict,
    )


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


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("number", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 32_767])
def test_every_width_of_a_length_is_written(number: int, version: int):
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
