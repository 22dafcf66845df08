"""What an observation says about an alteration of several keys."""

from decimal import Decimal

import pytest

from app.domain.alterations import ClientQuotaAlteration, Observation, Op, Outcome, observe
from app.domain.entities import ClientQuotaEntity

P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
ALICE = ClientQuotaEntity.of({"user": "alice"})
ALTERATION = ClientQuotaAlteration(ALICE, (Op(P, Decimal(5)), Op(C, remove=True)))
BEFORE = {P: 3.0, C: 7.0}


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        ({P: 5.0}, Outcome.APPLIED),
        ({P: 5.0, R: 1.0}, Outcome.APPLIED),
        (BEFORE, Outcome.NOT_APPLIED),
        ({**BEFORE, R: 1.0}, Outcome.NOT_APPLIED),
        ({P: 5.0, C: 7.0}, Outcome.OBSERVED_OTHER),
        ({P: 3.0}, Outcome.OBSERVED_OTHER),
        ({P: 5.0, C: 8.0}, Outcome.OBSERVED_OTHER),
        ({}, Outcome.OBSERVED_OTHER),
    ],
)
def test_all_keys_that_it_names_decide_and_no_others(seen: dict[str, float], outcome: Outcome):
    assert observe(ALTERATION, BEFORE, seen) == Observation(outcome)


def test_what_held_before_is_indistinguishable_only_if_all_of_it_did():
    assert observe(ALTERATION, {P: 5.0}, {P: 5.0}) == Observation(Outcome.APPLIED, True)
    assert observe(ALTERATION, {P: 5.0, C: 7.0}, {P: 5.0}) == Observation(Outcome.APPLIED, False)
