"""Made-up observations: minutes of pairs on brokers, some of them over their limit.

Each row follows from its number by hashes alone, so any partitioning gives the same rows.
"""

from datetime import UTC
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from app.pipeline.synth.plan import CLIENTS_A_USER, COMBOS, HOT_SHARE, KEYS, MINUTES_A_DAY, Plan
from app.pipeline.synth.quotas import (
    NAMELESS,
    NAMELESS_EVERY,
    PairIds,
    client_name,
    client_of_pair,
    limit_of,
    user_name,
    user_of_pair,
)

_HOT: Final = -1
_UNLIMITED_RATES: Final = (200_000, 400_000, 20, 2)
_GREEDY_EVERY: Final = 20
_GREEDY_FROM: Final = 5
_CLIENTLESS_EVERY: Final = 100
_CLIENTLESS: Final = 3


def observations(session: SparkSession, plan: Plan) -> DataFrame:
    """Return observation_minute, exactly as many rows as planned.

    One scrape a minute: the greatest rate is the average, and ``samples`` is 1.
    """
    numbers = session.range(0, plan.days * plan.sessions_a_day, 1, plan.files)
    sessions = _name(plan, _draw(plan, _assign(plan, _in_day(plan, numbers))))
    # What costs is done once for each session of minutes. The minutes come in the order of the
    # table then: sorting them again is a matter of looking.
    arranged = sessions.sortWithinPartitions("day", "key", "user", "client_id", "broker")
    minutes = arranged.select("*", F.explode(F.sequence(_long(1), F.col("rows"))).alias("nth"))
    return _table(plan, _measure(plan, minutes))


def _in_day(plan: Plan, numbers: DataFrame) -> DataFrame:
    """Give each session its day, and how many rows of the day are the hot pair's and others'."""
    placed = numbers.select(
        _div(F.col("id"), plan.sessions_a_day).alias("day"),
        (F.col("id") % plan.sessions_a_day).alias("session"),
    )
    day, total = F.col("day"), plan.observations
    all_rows = _div((day + 1) * total, plan.days) - _div(day * total, plan.days)
    counted = placed.select("day", "session", all_rows.alias("all_rows"))
    hot = _div(F.col("all_rows") + (HOT_SHARE - 1), HOT_SHARE)
    return counted.select("day", "session", "all_rows", hot.alias("hot_rows"))


def _assign(plan: Plan, sessions: DataFrame) -> DataFrame:
    """Give each session its pair, which of the pair's series it is, and its minutes."""
    day, hot_rows = F.col("day"), F.col("hot_rows")
    is_hot = F.col("session") < plan.hot_sessions
    session = F.col("session") - plan.hot_sessions
    within = _div(session, COMBOS)
    stable = plan.pairs_a_day // 2
    passing = within + day * (plan.pairs_a_day - stable)
    pair = F.when(is_hot, _long(_HOT)).when(within < stable, within).otherwise(passing)
    before = F.when(is_hot, F.col("session") * plan.minutes).otherwise(
        session * plan.session_minutes
    )
    left = F.when(is_hot, hot_rows).otherwise(F.col("all_rows") - hot_rows) - before
    most = F.when(is_hot, _long(plan.minutes)).otherwise(_long(plan.session_minutes))
    first = F.pmod(_hash(plan, "first", day, session), _long(_starts(plan)))
    return sessions.select(
        "day",
        pair.alias("pair"),
        F.when(is_hot, F.col("session")).otherwise(session % COMBOS).alias("combo"),
        F.when(is_hot, _long(0)).otherwise(first).alias("first"),
        F.least(left, most).alias("rows"),
    ).where(F.col("rows") > 0)


def _starts(plan: Plan) -> int:
    return plan.minutes - plan.session_minutes + 1


def _draw(plan: Plan, sessions: DataFrame) -> DataFrame:
    """Give each session its names' numbers, its broker, its key and its limit."""
    pair, combo = F.col("pair"), F.col("combo")
    is_hot = pair == _HOT
    drawn = _hash(plan, "place", pair)
    broker = F.pmod(drawn + F.when(combo == 2, 1).otherwise(0), _long(plan.brokers))
    last_key = F.when(F.pmod(drawn, _long(50)) == 7, 3).otherwise(2)
    key = F.when(combo == 3, last_key).otherwise(combo % 2)
    numbered = sessions.select(
        "*",
        F.when(is_hot, _long(0)).otherwise(user_of_pair(pair)).alias("user_number"),
        F.when(is_hot, _long(0)).otherwise(client_of_pair(plan, pair)).alias("client_number"),
        F.when(is_hot, combo % plan.brokers).otherwise(broker).cast("int").alias("broker"),
        F.when(is_hot, _div(combo, plan.brokers)).otherwise(key).cast("int").alias("key_number"),
    )
    ids = PairIds(pair, F.col("user_number"), F.col("client_number"))
    return numbered.select("*", limit_of(plan, ids, F.col("key_number")).alias("limit"))


def _name(plan: Plan, sessions: DataFrame) -> DataFrame:
    """Give each session its names, and its minutes over the limit."""
    user, pair = F.col("user_number"), F.col("pair")
    nameless = user % NAMELESS_EVERY == NAMELESS
    first_client = (pair >= 0) & (pair % CLIENTS_A_USER == 0)
    clientless = first_client & ((user == NAMELESS) | (user % _CLIENTLESS_EVERY == _CLIENTLESS))
    may_be_over = ~nameless & ~clientless & F.col("limit").isNotNull()
    return sessions.select(
        *("day", "pair", "combo", "first", "rows", "broker", "key_number", "limit"),
        F.get(F.array(*map(F.lit, KEYS)), F.col("key_number")).alias("key"),
        F.when(nameless, "").otherwise(user_name(user)).alias("user"),
        F.when(clientless, "").otherwise(client_name(F.col("client_number"))).alias("client_id"),
        F.when(may_be_over, _over_from(plan)).alias("over_from"),
    )


def _over_from(plan: Plan) -> Column:
    """Return the minute of the day in which a session goes over its limit; null for most."""
    pair = F.col("pair")
    hot = F.when(F.col("combo") == 0, _long(plan.minutes * 10 // 24))
    drawn = F.pmod(_hash(plan, "greedy", pair, F.col("key_number")), _long(_GREEDY_EVERY))
    other = F.when(drawn == 0, F.col("first") + _GREEDY_FROM)
    return F.when(pair == _HOT, hot).otherwise(other)


def _measure(plan: Plan, minutes: DataFrame) -> DataFrame:
    """Give each minute its rate and its throttle time."""
    minute = F.col("first") + F.col("nth") - 1
    noise = F.xxhash64(_long(plan.seed), F.col("day"), F.col("pair"), F.col("combo"), minute)
    last = F.col("over_from") + plan.minutes // 24
    over = F.coalesce((minute >= F.col("over_from")) & (minute <= last), F.lit(False))
    noisy = minutes.select(
        *("day", "broker", "key_number", "key", "limit", "user", "client_id"),
        minute.alias("minute"),
        (F.pmod(noise, _long(10_000)) / F.lit(10_000.0)).alias("noise"),
        over.alias("over"),
    )
    return noisy.select("*", _rate().alias("rate"), _throttle_ms().alias("throttle_ms"))


def _rate() -> Column:
    """Return a rate that decimal fractions tell exactly: byte rates in twentieths."""
    key = F.col("key_number")
    usual = F.get(F.array(*(F.lit(float(item)) for item in _UNLIMITED_RATES)), key)
    # Quiet nights: a parabola, as libraries disagree about the last digit of a sine.
    noon = F.abs(F.col("minute") - MINUTES_A_DAY // 2) / F.lit(MINUTES_A_DAY // 2)
    wave = F.lit(1.0) - F.lit(0.8) * noon * noon
    limit = F.col("limit")
    calm = F.coalesce(limit, usual) * (F.lit(0.03) + F.lit(0.6) * F.col("noise")) * wave
    rate = F.when(F.col("over"), limit * (F.lit(1.02) + F.lit(0.2) * F.col("noise"))).otherwise(
        calm / CLIENTS_A_USER
    )
    steps = F.when(key < 2, F.lit(20)).otherwise(F.lit(1000))
    return F.floor(rate * steps).cast("double") / steps


def _throttle_ms() -> Column:
    throttled = F.floor(F.lit(20) + F.lit(3000) * F.col("noise")).cast("double")
    return F.when(F.col("over"), throttled)


def _table(plan: Plan, rows: DataFrame) -> DataFrame:
    epoch = int(plan.start.astimezone(UTC).timestamp())
    minute = F.col("day") * MINUTES_A_DAY + F.col("minute")
    at = F.timestamp_seconds(F.lit(epoch) + minute * 60)
    rate = F.col("rate")
    bytes_est = F.when(F.col("key_number") < 2, F.round(rate * 60).cast("bigint"))
    return rows.select(
        F.lit(plan.cluster).alias("cluster_id"),
        F.to_date(at).alias("dt"),
        at.alias("ts"),
        (F.col("broker") + 1).alias("broker_id"),
        *("key", "user", "client_id"),
        F.lit(plan.grain).alias("grain"),
        rate.alias("rate_avg"),
        rate.alias("rate_max"),
        F.col("throttle_ms").alias("throttle_ms_avg"),
        F.col("throttle_ms").alias("throttle_ms_max"),
        F.lit(1).alias("samples"),
        bytes_est.alias("bytes_est"),
        F.lit("synth").alias("source"),
        F.lit(f"synth-{plan.seed}").alias("ingest_run_id"),
    )


def _hash(plan: Plan, what: str, *columns: Column) -> Column:
    return F.xxhash64(_long(plan.seed), F.lit(what), *columns)


def _div(number: Column, by: int) -> Column:
    return F.call_function("div", number, _long(by))


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")
