"""What brokers may do to alterations while a load runs."""

import random
from typing import Final

from tests.testkit.fake_kafka.state import (
    DROP_AFTER_APPLYING,
    DROP_BEFORE_APPLYING,
    Alteration,
    Fault,
    FaultSchedule,
    apply_late,
    time_out_and_apply_late,
)

LATEST_S: Final = 2.5
"""Later than that nothing is applied."""


def random_faults(seed: int, share: float = 0.25) -> FaultSchedule:
    """Return a fault schedule that does something to a share of all alterations."""
    chance = random.Random(seed)

    def decide(alteration: Alteration) -> Fault | None:
        if chance.random() > share:
            return None
        late_s = chance.uniform(0.05, LATEST_S)
        return chance.choice(
            (
                DROP_BEFORE_APPLYING,
                DROP_AFTER_APPLYING,
                apply_late(late_s),
                time_out_and_apply_late(late_s),
                Fault(delay_s=late_s / 10),
                Fault(refused=42),
                Fault(said=-1),
            )
        )

    return decide
