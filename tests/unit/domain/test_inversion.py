"""What takes an alteration back."""

import math

import pytest

from app.domain.entities import ClientQuotaEntity
from app.domain.inversion import inverse

ALICE = ClientQuotaEntity.of({"user": "alice"})
P = "producer_byte_rate"


@pytest.mark.parametrize(("stored", "written"), [(math.nan, "NaN"), (math.inf, "Infinity")])
def test_what_other_tools_stored_cannot_be_restored_and_is_named_as_elsewhere(
    stored: float, written: str
):
    with pytest.raises(ValueError, match=f"^{P} was {written} before, which"):
        inverse(ALICE, {P: stored}, {P: 5.0})
