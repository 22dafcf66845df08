"""Made-up quotas and observations: all kinds of entity, and minutes of pairs on brokers.

Everything follows from numbers by hashes alone, so any partitioning gives the same rows. There are
plain names, and all the odd ones that Kafka allows; some minutes are over their limit.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from app.pipeline.ingest.names import series_id
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.tasks import resolve
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


@dataclass(frozen=True)
class Plan:
    """Sizes, and what follows from them.

    Attributes:
        seed: What is random follows from it.
        observations: Rows of observation_minute.
        entities: Distinct entities of quota_version.
        cluster: The cluster id.
        start: Of the first minute, UTC.
    """

    seed: int
    observations: int
    entities: int
    cluster: str
    start: datetime

    @cached_property
    def brokers(self) -> int:
        """Brokers with the ids 1 and up: so many that the data are about a month's."""
        a_broker = _HOT_SHARE * len(KEYS) * _DAY * _DAYS
        return min(100, max(3, -(-self.observations // a_broker)))

    @property
    def hot_series(self) -> int:
        """Brokers and keys of the hot pair, which is seen in each minute on all of them."""
        return self.brokers * len(KEYS)

    @property
    def hot_rows(self) -> int:
        """Rows of the hot pair."""
        return -(-self.observations // _HOT_SHARE)

    @property
    def minutes(self) -> int:
        """From the first to the last minute."""
        return -(-self.hot_rows // self.hot_series)

    @property
    def days(self) -> int:
        """Days that the minutes are of."""
        return -(-self.minutes // _DAY)

    @property
    def session_minutes(self) -> int:
        """How long a pair is seen on one broker at most."""
        return min(self.minutes, _SESSION_MINUTES)

    @property
    def hot_sessions(self) -> int:
        """Sessions of the hot pair, which follow each other."""
        return self.hot_series * -(-self.minutes // self.session_minutes)

    @property
    def sessions(self) -> int:
        """Sessions of other pairs."""
        return -(-(self.observations - self.hot_rows) // self.session_minutes)

    @property
    def pairs_a_day(self) -> int:
        """Other pairs of a day: half of them come every day, the others once."""
        return max(2, -(-self.sessions // (_SESSIONS_A_PAIR * self.days)))

    @property
    def clients(self) -> int:
        """Distinct client-ids."""
        return max(16, self.pairs_a_day * self.days // 8)


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


def user_name(number: Column) -> Column:
    """Return the name of a user by its number: never empty, different for different numbers."""
    plain = F.concat(F.lit("team-"), number % 97, F.lit(".svc-"), number)
    return _odd_name(number, plain, _ODD_USERS)


def client_name(number: Column) -> Column:
    """Return the name of a client-id by its number, likewise."""
    plain = F.concat(F.lit("app-"), number % 31, F.lit("-"), number)
    return _odd_name(number, plain, _ODD_CLIENTS)


def _odd_name(number: Column, plain: Column, odd: dict[int, str]) -> Column:
    named = F.when(number == _LOOKALIKE, F.lit(DEFAULT_LOOKALIKE))
    for remainder, pattern in odd.items():
        before, _, after = pattern.partition("{}")
        name = F.concat(F.lit(before), number, F.lit(after))
        named = named.when(number % _ODD_EVERY == remainder, name)
    return named.otherwise(plain)


def _user_of_pair(pair: Column) -> Column:
    """Return the number of a pair's user; user 0 is the hot pair's."""
    return _div(pair, _CLIENTS_A_USER) + 1


def _client_of_pair(plan: Plan, pair: Column) -> Column:
    """Return the number of a pair's client-id; client-id 0 is the hot pair's."""
    user = _user_of_pair(pair)
    shared = F.pmod(user * 3 + pair % _CLIENTS_A_USER, F.lit(plan.clients)) + 1
    # Users without a name would share pairs, were their client-ids shared.
    return F.when(user % _NAMELESS_EVERY == _NAMELESS, pair + _ALONE).otherwise(shared)


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
    numbers = session.range(0, plan.entities, 1, -(-plan.entities // _ENTITIES_A_TASK))
    first = len(_DEFAULTS)
    block, position = _div(F.col("id") - first, len(_LEVELS)), (F.col("id") - first) % len(_LEVELS)
    index = F.when(F.col("id") < first, F.col("id")).otherwise(position + first).cast("int")
    # The numbers of a level's entities follow each other, whatever lies between them.
    of_level = [
        (block * _LEVELS.count(level) + _LEVELS[:before].count(level)) * _EVERY.get(level, 1)
        for before, level in enumerate(_LEVELS)
    ]
    drawn = numbers.select(
        F.get(F.array(*map(F.lit, _DEFAULTS + _LEVELS)), index).alias("level"),
        F.get(F.array(*[_long(0)] * first, *of_level), index).alias("number"),
    )
    level, number, pair = F.col("level"), F.col("number"), F.col("level") == 1
    user = F.when(pair, _user_of_pair(number)).otherwise(number)
    client = F.when(pair, _client_of_pair(plan, number)).otherwise(number)
    entries = F.filter(_entries(plan), lambda item: item.isNotNull())
    keyed = drawn.select(
        F.when(level.isin(1, 2, 3), user_name(user)).otherwise("").alias("user"),
        level.isin(4, 5, 6).alias("user_default"),
        F.when(level.isin(1, 4, 7), client_name(client)).otherwise("").alias("client_id"),
        level.isin(2, 5, 8).alias("client_default"),
        F.explode(entries).alias("entry"),
    )
    return keyed.select(
        F.lit(plan.cluster).alias("cluster_id"),
        *("user", "user_default", "client_id", "client_default", "entry.key", "entry.value"),
        F.date_sub(F.lit(plan.start.date()), 1).cast("timestamp").alias("valid_from"),
        F.lit(None).cast("timestamp").alias("valid_to"),
        F.lit("snapshot").alias("origin"),
        F.lit(None).cast("bigint").alias("audit_seq"),
        F.lit(None).cast("string").alias("alteration_id"),
    )


def _entries(plan: Plan) -> Column:
    """Return the keys of an entity with their values; null for a key that it has not."""
    entity = (F.col("level"), F.col("number"))
    sets = F.array(*map(F.lit, _KEY_SETS))
    bits = F.get(sets, F.pmod(_hash(plan, "keys", *entity), F.lit(len(_KEY_SETS))))
    for level, fixed in _DEFAULT_KEYS.items():
        bits = F.when(F.col("level") == level, fixed).otherwise(bits)
    entries = []
    for index, key in enumerate(KEYS):
        drawn = _hash(plan, key, *entity)
        percent = F.lit(5) * (F.pmod(drawn, F.lit(20)) + 1)
        mutations = (F.pmod(drawn, F.lit(50)) + 1) / F.lit(2)
        bytes_per_s = F.lit(65536) * F.pow(F.lit(2), F.pmod(drawn, F.lit(8)))
        value = (bytes_per_s, bytes_per_s, percent, mutations)[index].cast("double")
        entry = F.struct(F.lit(key).alias("key"), value.alias("value"))
        entries.append(F.when(bits.bitwiseAND(F.lit(1 << index)) != 0, entry))
    return F.array(*entries)


_HOT: Final = -1
_UNLIMITED_RATES: Final = (200_000.0, 400_000.0, 20.0, 2.0)
_GREEDY_EVERY: Final = 20
_GREEDY_FROM: Final = 5
_HOURS: Final = 24
_HOT_HOUR: Final = 10
"""In this hour of each day the hot pair is over its first limit on the first broker."""


def observations(session: SparkSession, plan: Plan) -> DataFrame:
    """Return observation_minute, exactly as many rows as planned.

    One scrape a minute: the greatest rate is the average, and ``samples`` is 1.
    """
    tasks = -(-plan.observations // _ROWS_A_TASK)
    numbers = session.range(0, plan.hot_sessions + plan.sessions, 1, tasks)
    named = _name(plan, _assign(plan, numbers))
    limited = resolve(named, LookUp.of(Versions.latest(quotas(session, plan).toArrow())))
    # What costs is done once for each session. Its minutes come nearly in the order of the table.
    arranged = limited.sortWithinPartitions("key", "user", "client_id", "broker", "first")
    minutes = arranged.select("*", F.explode(F.sequence(_long(0), F.col("rows") - 1)).alias("nth"))
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


def _in_hours(observations: DataFrame) -> DataFrame:
    return observations.withColumns({"hour": F.hour("ts"), "series_id": series_id(GRAIN)})


def _assign(plan: Plan, numbers: DataFrame) -> DataFrame:
    """Give each session its pair, its broker, its key, and its minutes."""
    length, others = plan.session_minutes, plan.observations - plan.hot_rows
    is_hot, session = F.col("id") < plan.hot_sessions, F.col("id") - plan.hot_sessions
    series = F.col("id") % plan.hot_series
    hot_first = _div(F.col("id"), plan.hot_series) * length
    hot_left = _div(plan.hot_rows - series + (plan.hot_series - 1), plan.hot_series) - hot_first
    visit, combo = _div(session, _SESSIONS_A_PAIR), session % _SESSIONS_A_PAIR
    of_day = visit % plan.pairs_a_day
    pair = F.when(of_day < plan.pairs_a_day // 2, of_day).otherwise(visit)
    window = plan.minutes // plan.days
    start = F.pmod(_hash(plan, "first", session), _long(window - length + 1))
    drawn = _hash(plan, "broker", pair)
    broker = F.pmod(drawn + F.when(combo == 2, 1).otherwise(0), _long(plan.brokers))
    last_key = F.when(F.pmod(drawn, _long(50)) == 7, 3).otherwise(2)
    key = F.when(combo == 3, last_key).otherwise(combo % 2)
    return numbers.select(
        F.when(is_hot, _long(_HOT)).otherwise(pair).alias("pair"),
        F.when(is_hot, series).otherwise(combo).alias("combo"),
        F.when(is_hot, series % plan.brokers).otherwise(broker).cast("int").alias("broker"),
        F.when(is_hot, _div(series, plan.brokers)).otherwise(key).cast("int").alias("key_number"),
        F.when(is_hot, hot_first)
        .otherwise(_div(visit, plan.pairs_a_day) * window + start)
        .alias("first"),
        F.least(F.when(is_hot, hot_left).otherwise(others - session * length), _long(length)).alias(
            "rows"
        ),
    ).where(F.col("rows") > 0)


def _name(plan: Plan, sessions: DataFrame) -> DataFrame:
    """Give each session its names, and tell whether it may go over its limit."""
    pair, is_hot = F.col("pair"), F.col("pair") == _HOT
    user = F.when(is_hot, _long(0)).otherwise(_user_of_pair(pair))
    client = F.when(is_hot, _long(0)).otherwise(_client_of_pair(plan, pair))
    nameless = user % _NAMELESS_EVERY == _NAMELESS
    first_client = ~is_hot & (pair % _CLIENTS_A_USER == 0)
    clientless = first_client & ((user == _NAMELESS) | (user % _CLIENTLESS_EVERY == _CLIENTLESS))
    is_drawn = F.pmod(_hash(plan, "greedy", pair, F.col("key_number")), _long(_GREEDY_EVERY)) == 0
    greedy = F.when(is_hot, F.col("combo") == 0).otherwise(is_drawn)
    return sessions.select(
        "*",
        F.lit(plan.cluster).alias("cluster_id"),
        F.lit(plan.start).alias("ts"),
        F.get(F.array(*map(F.lit, KEYS)), F.col("key_number")).alias("key"),
        F.when(nameless, "").otherwise(user_name(user)).alias("user"),
        F.when(clientless, "").otherwise(client_name(client)).alias("client_id"),
        (greedy & ~nameless & ~clientless).alias("greedy"),
    )


def _measure(plan: Plan, minutes: DataFrame) -> DataFrame:
    """Give each minute its rate and its throttle time."""
    minute = F.col("first") + F.col("nth")
    noise = _hash(plan, "noise", F.col("pair"), F.col("combo"), minute)
    hour = _div(minute * _HOURS, min(plan.minutes, _DAY)) % _HOURS
    late = F.when(F.col("pair") == _HOT, hour == _HOT_HOUR).otherwise(F.col("nth") >= _GREEDY_FROM)
    noisy = minutes.select(
        *("cluster_id", "broker", "key_number", "key", "limit", "user", "client_id"),
        minute.alias("minute"),
        (F.pmod(noise, _long(10_000)) / F.lit(10_000.0)).alias("noise"),
        (F.col("greedy") & late & F.col("limit").isNotNull()).alias("over"),
    )
    throttled = F.floor(F.lit(20) + F.lit(3000) * F.col("noise")).cast("double")
    return noisy.withColumns({"rate": _rate(), "throttle_ms": F.when(F.col("over"), throttled)})


def _rate() -> Column:
    """Return a rate that decimal fractions tell exactly: byte rates in twentieths."""
    key, limit = F.col("key_number"), F.col("limit")
    usual = F.get(F.array(*map(F.lit, _UNLIMITED_RATES)), key)
    # Quiet nights: a parabola, as libraries disagree about the last digit of a sine.
    noon = F.abs(F.col("minute") % _DAY - _DAY // 2) / F.lit(_DAY // 2)
    wave = F.lit(1.0) - F.lit(0.8) * noon * noon
    calm = F.coalesce(limit, usual) * (F.lit(0.03) + F.lit(0.6) * F.col("noise")) * wave
    rate = F.when(F.col("over"), limit * (F.lit(1.02) + F.lit(0.2) * F.col("noise"))).otherwise(
        calm / _CLIENTS_A_USER
    )
    steps = F.when(key < 2, F.lit(20)).otherwise(F.lit(1000))
    return F.floor(rate * steps).cast("double") / steps


def _table(plan: Plan, rows: DataFrame) -> DataFrame:
    epoch = int(plan.start.astimezone(UTC).timestamp())
    at = F.timestamp_seconds(F.lit(epoch) + F.col("minute") * 60)
    rate = F.col("rate")
    return rows.select(
        "cluster_id",
        F.to_date(at).alias("dt"),
        at.alias("ts"),
        (F.col("broker") + 1).alias("broker_id"),
        *("key", "user", "client_id"),
        F.lit(GRAIN).alias("grain"),
        rate.alias("rate_avg"),
        rate.alias("rate_max"),
        F.col("throttle_ms").alias("throttle_ms_avg"),
        F.col("throttle_ms").alias("throttle_ms_max"),
        F.lit(1).alias("samples"),
        F.when(F.col("key_number") < 2, F.round(rate * 60).cast("bigint")).alias("bytes_est"),
        F.lit("synth").alias("source"),
        F.lit(f"synth-{plan.seed}").alias("ingest_run_id"),
    )


def _hash(plan: Plan, what: str, *columns: Column) -> Column:
    return F.xxhash64(_long(plan.seed), F.lit(what), *columns)


def _div(number: Column, by: int) -> Column:
    return F.call_function("div", number, _long(by))


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")
