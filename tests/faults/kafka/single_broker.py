"""Answers that a fake broker may give."""

import struct
from typing import Any

from tests.testkit.fake_kafka.messages import alter_answer, describe_answer
from tests.testkit.fake_kafka.quotas import Verdict
from tests.testkit.kafka import entity

SHORT_S = 0.3

TWO_GIGABYTES = struct.pack(">i", 2**31 - 1)
NO_QUOTAS = describe_answer()
ALICE = entity(user="alice")
BOB = entity(user="bob", client_id=None)


def verdicts(**codes: int) -> Any:
    """Return the answer to an alteration, with the code of each user."""
    answers = [Verdict(entity(user=name), code, None) for name, code in codes.items()]
    return alter_answer(answers, throttle_time_ms=250)
