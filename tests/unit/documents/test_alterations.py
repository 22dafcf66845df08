"""Bodies of alterations as files: what is read, and each fault with its line and member."""

from decimal import Decimal

import pytest

from app.documents.alterations import Alterations, read_proposal
from app.documents.faults import UnreadableDocumentError
from app.documents.quotas import Document
from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.entities import ClientQuotaEntity

BODY = """{"validate_only": true, "reason": "INC-1", "alterations": [
  {"entity": {"user": "alice", "client-id": null}, "expected": {"producer_byte_rate": null},
   "ops": [{"key": "producer_byte_rate", "value": 1048576.5},
           {"key": "consumer_byte_rate", "remove": true},
           {"key": "request_percentage", "value": "80%"},
           {"key": "controller_mutation_rate", "value": 3, "remove": false}]}]}"""


def test_a_body_is_read_with_every_digit():
    assert read_proposal(BODY) == Alterations(
        (
            ClientQuotaAlteration(
                ClientQuotaEntity.of({"user": "alice", "client-id": None}),
                (
                    Op("producer_byte_rate", Decimal("1048576.5")),
                    Op("consumer_byte_rate", remove=True),
                    Op("request_percentage", Decimal(80)),
                    Op("controller_mutation_rate", Decimal(3)),
                ),
            ),
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        "quotas:\n- entity: {user: alice}\n  values: {producer_byte_rate: 4MiB}\n",
        "user,producer_byte_rate\nalice,4MiB\n",
    ],
)
def test_a_document_of_quotas_is_read_as_elsewhere(text: str):
    read = read_proposal(text)
    assert isinstance(read, Document)
    assert read.quotas[0].values == {"producer_byte_rate": Decimal(4 * 2**20)}


@pytest.mark.parametrize(
    ("text", "line", "detail"),
    [
        ('{"alterations": {}}', 1, "alterations is a list"),
        ('{"alterations": [],\n"more": 1}', 2, "more is unknown here"),
        ('{"alterations": [\n{"ops": []}]}', 2, "/alterations/0: entity is missing"),
        ('{"alterations": [{"entity": {"user": 1}, "ops": []}]}', 1, "user is a text"),
        ('{"alterations": [{"entity": {"user": "a"}, "ops": {}}]}', 1, "/alterations/0/ops is"),
        (
            '{"alterations": [{"entity": {"user": "a"}, "ops": [{"value": 1}]}]}',
            1,
            "/alterations/0/ops/0/key is missing",
        ),
        (
            '{"alterations": [{"entity": {"user": "a"},\n"ops": [\n{"key": "k", "value": "x"}]}]}',
            3,
            "/alterations/0/ops/0/value: Unknown quota key",
        ),
        (
            '{"alterations": [{"entity": {"user": "a"}, "ops": [{"key": "k", "remove": 1}]}]}',
            1,
            "/alterations/0/ops/0/remove is true or false",
        ),
        ("[]", 1, "this is a list"),
        ("", 1, "this is empty"),
        ("{", 2, "this is not YAML or JSON"),
    ],
)
def test_a_fault_has_its_line_and_its_member(text: str, line: int, detail: str):
    with pytest.raises(UnreadableDocumentError) as caught:
        read_proposal(text)
    assert [(fault.line, fault.detail[: len(detail)]) for fault in caught.value.faults] == [
        (line, detail)
    ]
