"""What an answer says of a call, and what is read of the metadata log."""

from datetime import UTC, datetime

import pytest

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history.events import Answer, Call, End, Write, answer_of, read_dump
from tests.unit.history.valid_histories import user, write

PAIR = ClientQuotaEntity.of({"user": 'a\u0001 "é,', "client-id": None})

DUMP = r"""
Dumping /data/__cluster_metadata-0/00000000000000000000.log
baseOffset: 18 lastOffset: 20 count: 3 CreateTime: 1795257920860 size: 229 isvalid: true
| offset: 18 CreateTime: 1795257920860 keySize: -1 payload: {"type":"CLIENT_QUOTA_RECORD","version":0,"data":{"entity":[{"entityType":"client-id","entityName":null},{"entityType":"user","entityName":"a\u0001 \"é,"}],"key":"producer_byte_rate","value":1.23456789E8,"remove":false}}
| offset: 19 CreateTime: 1795257920860 keySize: -1 payload: {"type":"NO_OP_RECORD","version":0,"data":{}}
| offset: 20 CreateTime: 1795257920923 keySize: -1 payload: {"type":"CONFIG_RECORD","version":0,"data":{"value":"CLIENT_QUOTA_RECORD"}}
| offset: 21 CreateTime: 1795257920923 keySize: -1 payload: {"type":"CLIENT_QUOTA_RECORD","version":0,"data":{"entity":[{"entityType":"user","entityName":"ann"}],"key":"producer_byte_rate","value":0.0,"remove":true}}
"""  # noqa: E501 - as Kafka prints it


def test_a_call_has_the_outcomes_and_the_end_of_its_answer():
    writes = (Write(PAIR, "producer_byte_rate", 1.0), write("ann", None))
    asked = Call(0, "client", writes, datetime.now(UTC))
    assert (asked.outcomes, asked.end) == ({}, End.UNKNOWN)
    asked.answer = Answer(207, alteration_id="a", outcomes=("applied", "refused"))
    assert asked.outcomes == {PAIR: "applied", user("ann"): "refused"}
    assert asked.end is End.OK


def test_only_what_was_surely_not_sent_has_failed(subtests: pytest.Subtests):
    for status, sent, end in [
        (200, None, End.OK),
        (207, None, End.OK),
        (503, "no", End.FAIL),
        (409, "no", End.FAIL),
        (503, "yes", End.UNKNOWN),
        (504, "maybe", End.UNKNOWN),
        (502, None, End.UNKNOWN),
    ]:
        with subtests.test(status=status, sent=sent):
            assert answer_of(status, {"sent_to_cluster": sent}, {}).end is end


def test_the_alteration_that_a_busy_entity_waits_for_is_not_this_call():
    busy = {"code": "entity-busy", "alteration_id": "another"}
    assert answer_of(409, busy, {}).alteration_id is None
    running = {"code": "idempotency-key-running", "alteration_id": "this"}
    assert answer_of(409, running, {}).alteration_id == "this"


def test_the_metadata_log_is_read_from_the_dump_of_kafkas_own_tool():
    first, second = read_dump(DUMP)
    assert first.write == Write(PAIR, "producer_byte_rate", 123456789.0)
    assert first.at == datetime(2026, 11, 21, 10, 45, 20, 860000, UTC)
    assert second.write == write("ann", None)
    assert first.latest == second.at
    assert second.latest > second.at
