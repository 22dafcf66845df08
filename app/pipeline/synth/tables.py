"""Made-up quotas and observations: all kinds of entity, and minutes of pairs on brokers.

Everything follows from numbers by hashes alone, so any partitioning gives the same rows. There are
plain names, and all the odd ones that Kafka allows; some minutes are over their limit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from app.pipeline.by_partition import of_all_rows
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.series import RESOLVED_DDL, resolve
from app.pipeline.resolve.versions import Versions
from app.pipeline.tables import SERIES

KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
DEFAULT_LOOKALIKE: Final = "<default>"
"""An ordinary name, which must not be taken for the default entity."""

GRAIN: Final = "bucket"
"""Names are tags of metrics."""

_DAY: Final = 1440
_DAYS: Final = 30
_HOT_SHARE: Final = 10
"""One of so many rows belongs to one pair."""

_CLIENTS_A_USER: Final = 4
_SESSIONS_A_PAIR: Final = 4
"""Each pair is seen as so many (broker, key) at a time."""

_SESSION_MINUTES: Final = 15
_ROWS_A_TASK: Final = 1_000_000
_ENTITIES_A_TASK: Final = 250_000


@dataclass
class Plan:
    """Sizes, and what follows from them.

    Attributes:
        seed: What is random follows from it.
        observations: Rows of observation_minute.
        entities: Distinct entities of quota_version.
        start: Of the first minute, UTC.
        brokers: With the ids 1 and up: so many that the data are about a month's.
        hot_series: Brokers and keys of the hot pair, which is seen in each minute on all of them.
        hot_rows: Rows of the hot pair.
        minutes: From the first to the last.
        days: That the minutes are of.
        session_minutes: How long a pair is seen on one broker at most.
        hot_sessions: Sessions of the hot pair, which follow each other.
        sessions: Those of other pairs.
        pairs_a_day: Other pairs of a day: half of them come every day, the others once.
        clients: Distinct client-ids.
    """

    seed: int
    observations: int
    entities: int
    cluster: str
    start: datetime

    def __post_init__(self) -> None:
        a_broker = _HOT_SHARE * len(KEYS) * _DAY * _DAYS
        self.brokers = min(100, max(3, _ceil_div(self.observations, a_broker)))
        self.hot_series = self.brokers * len(KEYS)
        self.hot_rows = _ceil_div(self.observations, _HOT_SHARE)
        self.minutes = _ceil_div(self.hot_rows, self.hot_series)
        self.days = _ceil_div(self.minutes, _DAY)
        self.session_minutes = min(self.minutes, _SESSION_MINUTES)
        self.hot_sessions = self.hot_series * _ceil_div(self.minutes, self.session_minutes)
        self.sessions = _ceil_div(self.observations - self.hot_rows, self.session_minutes)
        self.pairs_a_day = max(2, _ceil_div(self.sessions, _SESSIONS_A_PAIR * self.days))
        self.clients = max(16, self.pairs_a_day * self.days // 8)


def _ceil_div(number: int, by: int) -> int:
    return -(-number // by)


_ODD_USERS: Final = {
    5: "CN=app-{},OU=Kafka,O=Example Corp",
    6: "Jürgen Groß {}",
    7: "用户-{}",
    8: 'a"b\\c*d?{}',
    9: "100%+{} ~x",
    10: "service@team-{}.example",
    11: "\N{ROCKET}{}",
    12: "%41-{}",
    13: " blank-{} ",
}
_ODD_CLIENTS: Final = {
    5: "etl, hourly ({})",
    6: "größe-{}",
    7: 'say "hi"; {}',
    8: "c:\\apps\\{}.exe",
    9: "any*?{}",
    10: "connector-消费-{}",
    11: "k=v,{}",
}
_LOOKALIKE: Final = 1
_ODD_EVERY: Final = 40
_NAMELESS_EVERY: Final = 500
_NAMELESS: Final = 2
_CLIENTLESS_EVERY: Final = 100
_CLIENTLESS: Final = 3
_ALONE: Final = 1_000_000
"""From here on client-ids are numbered by pair: each belongs to one user only."""


def user_name(number: str) -> str:
    """Return the name of a user by its number: never empty, different for different numbers."""
    return _odd_name(number, f"concat('team-', {number} % 97, '.svc-', {number})", _ODD_USERS)


def client_name(number: str) -> str:
    """Return the name of a client-id by its number, likewise."""
    return _odd_name(number, f"concat('app-', {number} % 31, '-', {number})", _ODD_CLIENTS)


def _odd_name(number: str, plain: str, odd: Mapping[int, str]) -> str:
    cases = []
    for remainder, pattern in odd.items():
        before, _, after = pattern.partition("{}")
        name = f"concat(r'{before}', {number}, r'{after}')"
        cases.append(f"when {number} % {_ODD_EVERY} = {remainder} then {name}")
    lookalike = f"when {number} = {_LOOKALIKE} then '{DEFAULT_LOOKALIKE}'"
    return f"case {lookalike} {' '.join(cases)} else {plain} end"


def _user_of_pair(pair: str) -> str:
    """Return the number of a pair's user; user 0 is the hot pair's."""
    return f"({pair} div {_CLIENTS_A_USER} + 1)"


def _client_of_pair(plan: Plan, pair: str) -> str:
    """Return the number of a pair's client-id; client-id 0 is the hot pair's."""
    user = _user_of_pair(pair)
    shared = f"pmod({user} * 3 + {pair} % {_CLIENTS_A_USER}, {plan.clients}) + 1"
    # Users without a name would share pairs, were their client-ids shared.
    return f"if({user} % {_NAMELESS_EVERY} = {_NAMELESS}, {pair} + {_ALONE}, {shared})"


_DEFAULTS: Final = (6, 5, 8)
"""The levels of the first entities: default user, with the default client-id, the latter alone."""

_LEVELS: Final = (*(3,) * 8, *(1,) * 6, *(2,) * 2, 4, *(7,) * 3)
"""The levels of each twenty of the others."""

_EVERY: Final = {1: 2, 2: 3, 4: 2}
"""One of so many pairs, users or client-ids may have an entity of the level; else each."""

_DEFAULT_KEYS: Final = {6: 0b1010, 5: 0b0001, 8: 0b0110}
_KEY_SETS: Final = (0b0001, 0b0011, 0b0011, 0b0111, 0b0100, 0b1010, 0b0010, 0b0101)
"""Bits by the order of ``KEYS``: one to three keys."""


def quotas(session: SparkSession, plan: Plan) -> DataFrame:
    """Return quota_version: as many entities as planned, each with one to three keys."""
    numbers = session.range(0, plan.entities, 1, _ceil_div(plan.entities, _ENTITIES_A_TASK))
    first, block = len(_DEFAULTS), len(_LEVELS)
    # The numbers of a level's entities follow each other, whatever lies between them.
    of_level = [
        f"((id - {first}) div {block} * {_LEVELS.count(level)} + {_LEVELS[:before].count(level)})"
        f" * {_EVERY.get(level, 1)}"
        for before, level in enumerate(_LEVELS)
    ]
    index = f"int(if(id < {first}, id, (id - {first}) % {block} + {first}))"
    user = f"if(level = 1, {_user_of_pair('number')}, number)"
    client = f"if(level = 1, {_client_of_pair(plan, 'number')}, number)"
    return (
        numbers.selectExpr(
            f"get({_array(_DEFAULTS + _LEVELS)}, {index}) as level",
            f"get({_array(['0L'] * first + of_level)}, {index}) as number",
        )
        .selectExpr(
            f"if(level in (1, 2, 3), {user_name(user)}, '') as user",
            "level in (4, 5, 6) as user_default",
            f"if(level in (1, 4, 7), {client_name(client)}, '') as client_id",
            "level in (2, 5, 8) as client_default",
            f"explode(filter({_entries(plan)}, entry -> entry is not null)) as entry",
        )
        .select(
            F.lit(plan.cluster).alias("cluster_id"),
            *("user", "user_default", "client_id", "client_default", "entry.key", "entry.value"),
            F.date_sub(F.lit(plan.start.date()), 1).cast("timestamp").alias("valid_from"),
            F.lit(None).cast("timestamp").alias("valid_to"),
            F.lit("snapshot").alias("origin"),
            F.lit(None).cast("bigint").alias("audit_seq"),
            F.lit(None).cast("string").alias("alteration_id"),
        )
    )


_VALUES: Final = {
    "producer_byte_rate": "65536 * pow(2, pmod({drawn}, 8))",
    "consumer_byte_rate": "65536 * pow(2, pmod({drawn}, 8))",
    "request_percentage": "5 * (pmod({drawn}, 20) + 1)",
    "controller_mutation_rate": "(pmod({drawn}, 50) + 1) / 2",
}


def _entries(plan: Plan) -> str:
    """Return the keys of an entity with their values; null for a key that it has not."""
    drawn = _hash(plan, "keys", "level", "number")
    fixed = " ".join(f"when {level} then {bits}" for level, bits in _DEFAULT_KEYS.items())
    bits = f"case level {fixed} else get({_array(_KEY_SETS)}, pmod({drawn}, {len(_KEY_SETS)})) end"
    return _array(
        f"if(({bits}) & {1 << index} != 0, struct('{key}' as key, double("
        f"{_VALUES[key].format(drawn=_hash(plan, key, 'level', 'number'))}) as value), null)"
        for index, key in enumerate(KEYS)
    )


_HOT: Final = -1
_GREEDY_EVERY: Final = 20
_GREEDY_FROM: Final = 5
_HOURS: Final = 24
_HOT_HOUR: Final = 10
"""In this hour of each day the hot pair is over its first limit on the first broker."""


def observations(session: SparkSession, plan: Plan) -> DataFrame:
    """Return observation_minute, exactly as many rows as planned.

    One scrape a minute: the greatest rate is the average, and ``samples`` is 1.
    """
    tasks = _ceil_div(plan.observations, _ROWS_A_TASK)
    numbers = session.range(0, plan.hot_sessions + plan.sessions, 1, tasks)
    named = _name(plan, _assign(plan, numbers))
    look_up = LookUp.of(Versions.latest(quotas(session, plan).toArrow()))
    columns = (f"{name} {kind}" for name, kind in named.dtypes)
    limited = named.mapInArrow(
        of_all_rows(lambda rows: resolve(rows, look_up)), ", ".join((*columns, RESOLVED_DDL))
    )
    # What costs is done once for each session. Its minutes come nearly in the order of the table.
    arranged = limited.sortWithinPartitions("key", "user", "client_id", "broker", "first")
    minutes = arranged.selectExpr("*", "explode(sequence(0L, rows - 1)) as nth")
    return _table(plan, _measure(plan, minutes))


def series_of(observations: DataFrame) -> DataFrame:
    """Return the series of observation_minute, in files of an hour."""
    named = _in_hours(observations).groupBy(
        *SERIES.partitions, "series_id", "key", "user", "client_id", "grain"
    )
    seen = named.agg(
        F.min("ts").alias("first_seen"),
        F.max("ts").alias("last_seen"),
        F.first("source").alias("source"),
        F.first("ingest_run_id").alias("ingest_run_id"),
    )
    return seen.repartition(*SERIES.partitions)


def rates_of(observations: DataFrame) -> DataFrame:
    """Return the minutes of the series, in files of an hour."""
    return _in_hours(observations).repartition(*SERIES.partitions)


_SERIES_ID: Final = f"""
    xxhash64(xxhash64(cluster_id, key), xxhash64(user), xxhash64(client_id), xxhash64('{GRAIN}'))
"""
"""As ``ingest`` makes it of the same names."""


def _in_hours(observations: DataFrame) -> DataFrame:
    return observations.withColumns({"hour": F.hour("ts"), "series_id": F.expr(_SERIES_ID)})


def _assign(plan: Plan, numbers: DataFrame) -> DataFrame:
    """Give each session its pair, its broker, its key, and its minutes."""
    length, others = plan.session_minutes, plan.observations - plan.hot_rows
    window, a_day = plan.minutes // plan.days, plan.pairs_a_day
    session = f"(id - {plan.hot_sessions})"
    visit, combo = f"({session} div {_SESSIONS_A_PAIR})", f"({session} % {_SESSIONS_A_PAIR})"
    series, hot_first = f"(id % {plan.hot_series})", f"(id div {plan.hot_series} * {length})"
    hot_left = f"({plan.hot_rows} - {series} + {plan.hot_series - 1}) div {plan.hot_series}"
    pair = f"if({visit} % {a_day} < {a_day // 2}, {visit} % {a_day}, {visit})"
    drawn = _hash(plan, "broker", pair)
    start = f"pmod({_hash(plan, 'first', session)}, {window - length + 1})"
    broker = f"pmod({drawn} + if({combo} = 2, 1, 0), {plan.brokers})"
    key = f"if({combo} = 3, if(pmod({drawn}, 50) = 7, 3, 2), {combo} % 2)"
    columns = {
        "pair": (f"{_HOT}L", pair),
        "combo": (series, combo),
        "broker": (f"int({series} % {plan.brokers})", f"int({broker})"),
        "key_number": (f"int({series} div {plan.brokers})", f"int({key})"),
        "first": (hot_first, f"{visit} div {a_day} * {window} + {start}"),
        "rows": (
            f"least({hot_left} - {hot_first}, {length})",
            f"least({others} - {session} * {length}, {length})",
        ),
    }
    return numbers.selectExpr(
        *(
            f"if(id < {plan.hot_sessions}, {hot}, {other}) as {name}"
            for name, (hot, other) in columns.items()
        )
    ).where("rows > 0")


def _name(plan: Plan, sessions: DataFrame) -> DataFrame:
    """Give each session its names, and whether it may go over its limit."""
    hot, nameless = f"pair = {_HOT}", f"user_number % {_NAMELESS_EVERY} = {_NAMELESS}"
    clientless = (
        f"not {hot} and pair % {_CLIENTS_A_USER} = 0 and "
        f"(user_number = {_NAMELESS} or user_number % {_CLIENTLESS_EVERY} = {_CLIENTLESS})"
    )
    drawn = f"pmod({_hash(plan, 'greedy', 'pair', 'key_number')}, {_GREEDY_EVERY}) = 0"
    greedy = f"if({hot}, combo = 0, {drawn})"
    numbered = sessions.selectExpr(
        "*",
        f"if({hot}, 0L, {_user_of_pair('pair')}) as user_number",
        f"if({hot}, 0L, {_client_of_pair(plan, 'pair')}) as client_number",
    )
    named = numbered.selectExpr(
        "*",
        f"get({_array(map(repr, KEYS))}, key_number) as key",
        f"if({nameless}, '', {user_name('user_number')}) as user",
        f"if({clientless}, '', {client_name('client_number')}) as client_id",
        f"{greedy} and not ({nameless}) and not ({clientless}) as greedy",
    )
    constants = {"cluster_id": F.lit(plan.cluster), "ts": F.lit(plan.start)}
    return named.drop("user_number", "client_number").withColumns(constants)


def _measure(plan: Plan, minutes: DataFrame) -> DataFrame:
    """Give each minute its rate and its throttle time."""
    hour = f"(first + nth) * {_HOURS} div {min(plan.minutes, _DAY)} % {_HOURS}"
    late = f"if(pair = {_HOT}, {hour} = {_HOT_HOUR}, nth >= {_GREEDY_FROM})"
    noise = _hash(plan, "noise", "pair", "combo", "first + nth")
    noisy = minutes.selectExpr(
        *("cluster_id", "broker", "key_number", "key", "limit", "user", "client_id"),
        "first + nth as minute",
        f"pmod({noise}, 10000) / 10000D as noise",
        f"greedy and {late} and limit is not null as over",
    )
    throttled = "if(over, double(floor(20 + 3000 * noise)), null) as throttle_ms"
    return noisy.selectExpr("*", f"{_RATE} as rate", throttled)


# Quiet nights: a parabola, as libraries disagree about the last digit of a sine.
_NOON: Final = f"abs(minute % {_DAY} - {_DAY // 2}) / {_DAY // 2}"
_STEPS: Final = "if(key_number < 2, 20, 1000)"
_RATE: Final = f"""
    double(floor(if(over, limit * (1.02D + 0.2D * noise),
      coalesce(limit, get(array(200000D, 400000D, 20D, 2D), key_number))
        * (0.03D + 0.6D * noise) * (1D - 0.8D * ({_NOON}) * ({_NOON})) / {_CLIENTS_A_USER})
      * {_STEPS})) / {_STEPS}
"""
"""A rate that decimal fractions tell exactly: byte rates in twentieths."""


def _table(plan: Plan, rows: DataFrame) -> DataFrame:
    epoch = int(plan.start.astimezone(UTC).timestamp())
    return rows.withColumn("ts", F.timestamp_seconds(F.expr(f"{epoch} + minute * 60"))).selectExpr(
        *("cluster_id", "to_date(ts) as dt", "ts", "broker + 1 as broker_id", "key", "user"),
        *("client_id", f"'{GRAIN}' as grain", "rate as rate_avg", "rate as rate_max"),
        *("throttle_ms as throttle_ms_avg", "throttle_ms as throttle_ms_max", "1 as samples"),
        "if(key_number < 2, bigint(round(rate * 60)), null) as bytes_est",
        *("'synth' as source", f"'synth-{plan.seed}' as ingest_run_id"),
    )


def _hash(plan: Plan, what: str, *columns: str) -> str:
    return f"xxhash64(bigint('{plan.seed}'), '{what}', {', '.join(columns)})"


def _array(items: Iterable[object]) -> str:
    return f"array({', '.join(map(str, items))})"
