"""Answers that a fake broker may give."""

import struct

from kafka.protocol.admin import AlterClientQuotasResponse, DescribeClientQuotasResponse

from tests.testkit.kafka import entity

SHORT_S = 0.3

TWO_GIGABYTES = struct.pack(">i", 2**31 - 1)
NO_QUOTAS = DescribeClientQuotasResponse(
    throttle_time_ms=0, error_code=0, error_message=None, entries=[]
)
ALICE = entity(user="alice")
BOB = entity(user="bob", client_id=None)


def verdicts(*answers: tuple[str, str | None, int]) -> AlterClientQuotasResponse:
    entry = AlterClientQuotasResponse.EntryData
    return AlterClientQuotasResponse(
        throttle_time_ms=250,
        entries=[
            entry(
                error_code=code,
                error_message=None,
                entity=[entry.EntityData(entity_type=kind, entity_name=name)],
            )
            for kind, name, code in answers
        ],
    )
