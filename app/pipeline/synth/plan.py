"""How much of everything ``synth`` makes up, from the sizes that are asked for."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

MINUTES_A_DAY: Final = 1440
KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
HOT_SHARE: Final = 10
"""One of so many rows belongs to one pair."""

COMBOS: Final = 4
"""Each pair is seen as so many (broker, key)."""

CLIENTS_A_USER: Final = 4

_DAYS: Final = 30
_ROWS_A_FILE: Final = 1_000_000
_SESSION_MINUTES: Final = 15


@dataclass(frozen=True)
class Plan:
    """Sizes, and what follows from them.

    Sessions, minutes of one series, are numbered; a session's day, series and first minute follow
    from its number, so that any rows of the table can be made up alone. Those of the hot pair,
    which is seen all day, come first; each further pair is seen for a short time.

    Attributes:
        seed: What is random follows from it.
        observations: Rows of observation_minute.
        entities: Distinct entities of quota_version.
        cluster: The cluster id.
        start: Of the first minute, UTC.
        grain: Of each row.
    """

    seed: int
    observations: int
    entities: int
    cluster: str
    start: datetime
    grain: str = "bucket"

    @cached_property
    def brokers(self) -> int:
        """Brokers with the ids 1 and up: so many that the data are about a month's."""
        a_broker = HOT_SHARE * len(KEYS) * MINUTES_A_DAY * _DAYS
        return min(100, max(3, -(-self.observations // a_broker)))

    @cached_property
    def days(self) -> int:
        """Days that the rows are spread over, evenly."""
        a_day = HOT_SHARE * self.brokers * len(KEYS) * MINUTES_A_DAY
        return max(1, -(-self.observations // a_day))

    @cached_property
    def minutes(self) -> int:
        """Minutes of a day in which there is anything: all, but where there is only one day."""
        if self.days > 1:
            return MINUTES_A_DAY
        hot = -(-self.observations // HOT_SHARE)
        return max(1, -(-hot // (self.brokers * len(KEYS))))

    @property
    def session_minutes(self) -> int:
        """How long a pair is seen on one broker."""
        return min(self.minutes, _SESSION_MINUTES)

    @property
    def hot_sessions(self) -> int:
        """Series of the hot pair, each all day on one broker."""
        hot = -(-self._rows_a_day // HOT_SHARE)
        return -(-hot // self.minutes)

    @property
    def sessions_a_day(self) -> int:
        """Sessions of one day: the hot pair's first."""
        others = self._rows_a_day - self._rows_a_day // HOT_SHARE
        return self.hot_sessions - (-others // self.session_minutes)

    @property
    def _rows_a_day(self) -> int:
        """Rows of a day; other days have this many or one less."""
        return -(-self.observations // self.days)

    @cached_property
    def pairs_a_day(self) -> int:
        """Pairs of a day: half of them come every day, the others once."""
        return max(2, -(-self._rows_a_day // (self.session_minutes * COMBOS)))

    @cached_property
    def clients(self) -> int:
        """Distinct client-ids."""
        return max(16, self.pairs_a_day * self.days // 8)

    @property
    def files(self) -> int:
        """Tasks that write observation_minute: the same whatever the cores, for the same bytes."""
        return self.days * max(1, -(-self.observations // (self.days * _ROWS_A_FILE)))
