"""What recovery saw behind its fences, and what that says of each entity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.alterations import AlterationResult, Observation, Values, observe, same_values
from app.service.alterations.barrier import BarrierRead
from app.service.recovery.fences import FencePair
from app.service.recovery.recovery_ports import OpenAlteration, Recovered


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at many entities through one broker.

    Attributes:
        pair: The fences before it.
        read: What was read behind the barrier.
        at: When (UTC).
    """

    pair: FencePair
    read: BarrierRead
    at: datetime

    def findings(
        self, batch: Sequence[OpenAlteration], *, final_after_s: float
    ) -> Sequence[Recovered]:
        """Return what was found of each entity; final where it was sent so long ago."""
        common = self._evidence()
        return [self._finding(one, common, final=one.age_s >= final_after_s) for one in batch]

    def _finding(self, one: OpenAlteration, common: Mapping[str, Any], *, final: bool) -> Recovered:
        alteration, before = one.audited.alteration, one.audited.before or {}
        seen = self.read.values.get(alteration.entity, {})
        observation = observe(alteration, before, seen)
        evidence = {**common, **_seen(observation, seen)}
        result = AlterationResult(
            alteration.entity,
            observation.outcome,
            changed=not same_values(before, seen),
            before=before,
            after=seen,
            warnings=one.audited.warnings,
        )
        return Recovered(one.alteration_id, one.audited.ordinal, result, final, evidence)

    def _evidence(self) -> Mapping[str, Any]:
        quorum = self.read.quorum
        return {
            **self.pair.evidence,
            "observed_at": self.at.isoformat(),
            "verified": self.read.verified,
            "high_watermark": quorum.high_watermark if quorum else None,
            "log_end": quorum.log_ends.get(self.pair.broker_id) if quorum else None,
        }


def _seen(observation: Observation, seen: Values) -> Mapping[str, Any]:
    return {
        "indistinguishable": observation.indistinguishable,
        "seen": {key: str(value) for key, value in seen.items()},
        "found": observation.outcome.value,
    }
