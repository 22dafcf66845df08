"""Our strict reader of kafka-python's messages, what our requests say, what error codes mean."""

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
)
from app.domain.errors import BrokerError, InvalidRequestError, Retry, TooManyRequestsError
from app.kafka.connection import framed
from app.kafka.errors import describe_error
from app.kafka.quota_messages import (
    Reader,
    UnreadableAnswerError,
    alter_frame,
    alter_outcome,
    alter_refusal,
    describe_request,
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


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("code", [-1, 7, 41, 9999])
def test_an_error_beside_entries_is_an_error(code: int, version: int):
    error = DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=code, error_message=None, entries=[]
    )
    answer = read_described(with_header(error.encode(version=version), version), version)
    assert (answer.error_code, answer.quotas) == (code, None)


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


def test_requests_say_what_was_asked_for():
    of = ClientQuotaEntity.of({"user": "a", "client-id": None})
    change = ClientQuotaAlteration(of, (Op("k", Decimal("1.5")), Op("gone", remove=True)))
    written = alter_frame([change], 1, 7, validate_only=True)
    assert AlterClientQuotasRequest.decode(written, 1, header=True, framed=True).to_dict() == {
        "entries": [
            {
                "entity": [
                    {"entity_type": "client-id", "entity_name": None},
                    {"entity_type": "user", "entity_name": "a"},
                ],
                "ops": [
                    {"key": "k", "value": 1.5, "remove": False},
                    {"key": "gone", "value": 0.0, "remove": True},
                ],
            }
        ],
        "validate_only": True,
    }
    component = ClientQuotaFilterComponent
    kinds = (
        component.of_entity("user", "a"),
        component.of_default_entity("ip"),
        component.of_entity_type("client-id"),
    )
    written = describe_request(ClientQuotaFilter(kinds, strict=True)).encode(version=1)
    assert DescribeClientQuotasRequest.decode(written, version=1).to_dict() == {
        "components": [
            {"entity_type": "user", "match_type": 0, "match": "a"},
            {"entity_type": "ip", "match_type": 1, "match": None},
            {"entity_type": "client-id", "match_type": 2, "match": None},
        ],
        "strict": True,
    }


@pytest.mark.parametrize(
    ("name", "version", "error"),
    [
        pytest.param("\ud800", 0, ValueError, id="half of a surrogate pair"),
        pytest.param("\ud800", 1, ValueError, id="the same in version 1"),
        pytest.param("x" * 32_768, 0, struct.error, id="too long for version 0"),
    ],
)
def test_a_name_that_the_protocol_cannot_say_is_not_written(
    name: str, version: int, error: type[Exception]
):
    change = ClientQuotaAlteration(ClientQuotaEntity.of({"user": name}), ())
    with pytest.raises(error):
        alter_frame([change], version, 1, validate_only=False)


ops = st.builds(
    Op,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.none() | st.decimals(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
alterations = st.lists(
    st.builds(ClientQuotaAlteration, entities.map(ClientQuotaEntity.of), st.lists(ops).map(tuple))
)


@given(alterations, versions, st.booleans())
def test_an_alter_has_the_bytes_that_kafka_python_writes(
    asked: list[ClientQuotaAlteration], version: int, validate_only: bool
):
    entries = [
        (each.entity.entries, [(op.key, float(op.value or 0), op.remove) for op in each.ops])
        for each in asked
    ]
    message = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    frame = alter_frame(asked, version, 7, validate_only=validate_only)
    assert frame == framed(message, version, 7)


def test_a_code_means_what_the_table_of_verdicts_says(subtests: pytest.Subtests):
    for code, outcome, name in [
        (42, Outcome.REFUSED, "INVALID_REQUEST"),
        (44, Outcome.REFUSED, "POLICY_VIOLATION"),
        (35, Outcome.REFUSED, "UNSUPPORTED_VERSION"),
        (40, Outcome.REFUSED, "INVALID_CONFIG"),
        (31, Outcome.REFUSED, "CLUSTER_AUTHORIZATION_FAILED"),
        (54, Outcome.REFUSED, "SECURITY_DISABLED"),
        (89, Outcome.REFUSED, "THROTTLING_QUOTA_EXCEEDED"),
        (7, Outcome.UNKNOWN, "REQUEST_TIMED_OUT"),
        (-1, Outcome.UNKNOWN, "UNKNOWN_SERVER_ERROR"),
        (41, Outcome.UNKNOWN, "NOT_CONTROLLER"),
        (13, Outcome.UNKNOWN, "NETWORK_EXCEPTION"),
        (14, Outcome.UNKNOWN, "COORDINATOR_LOAD_IN_PROGRESS"),
        (31999, Outcome.UNKNOWN, None),
    ]:
        with subtests.test(code=code, name=name):
            assert alter_outcome(code, validate_only=False) is outcome
            refusal = alter_refusal(code, None)
            assert refusal is not None
            assert refusal.kafka_error == name
            assert str(code) in refusal.message


def test_success_is_applied_or_validated_and_has_no_refusal():
    assert alter_outcome(0, validate_only=False) is Outcome.APPLIED
    assert alter_outcome(0, validate_only=True) is Outcome.VALIDATED
    assert alter_refusal(0, None) is None


def test_a_refusal_of_our_own_account_names_the_acl_that_is_missing():
    refusal = alter_refusal(31, "Cluster authorization failed.")
    assert refusal is not None
    assert "Cluster authorization failed." in refusal.message
    assert "ALTER_CONFIGS on Cluster kafka-cluster" in refusal.message
    error = describe_error(31, None, 0)
    assert type(error) is BrokerError
    assert error.code == "service-account-not-authorized"
    assert error.kafka_error == "CLUSTER_AUTHORIZATION_FAILED"
    assert "DESCRIBE_CONFIGS on Cluster kafka-cluster" in error.detail


def test_a_describe_error_keeps_the_words_of_the_broker(subtests: pytest.Subtests):
    for code, kind in [
        (42, InvalidRequestError),
        (35, InvalidRequestError),
        (7, BrokerError),
        (-1, BrokerError),
    ]:
        with subtests.test(code=code):
            error = describe_error(code, "Unsupported entity type bad", 0)
            assert type(error) is kind
            assert error.detail == "Unsupported entity type bad"


def test_a_throttled_describe_says_when_to_come_back():
    error = describe_error(89, "later", 1500)
    assert type(error) is TooManyRequestsError
    assert error.retry_after_s == 1.5
    assert error.retry is Retry.SAFE
