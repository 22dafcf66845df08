"""Made-up names and quotas: all kinds of entity, so that each level decides for some users.

There are plain names, and all the odd ones that Kafka allows.

Entities are numbered. The first three are the default entities; of each twenty others, so many are
of each level. Whether an entity exists, which keys it has and their values follow from its number,
so that ``synth`` knows the limit of a pair without looking anything up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from app.pipeline.synth.plan import CLIENTS_A_USER, KEYS, Plan

DEFAULT_LOOKALIKE: Final = "<default>"
"""An ordinary name, which must not be taken for the default entity."""

_LOOKALIKE: Final = 1
_EVERY: Final = 40

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

DEFAULTS: Final = {6: 0, 5: 1, 8: 2}
"""Level to number: default user; default user with default client-id; default client-id."""

_KINDS: Final = {3: (0, 8), 1: (8, 6), 2: (14, 2), 4: (16, 1), 7: (17, 3)}
"""Level to (first, how many) of each twenty."""

_BLOCK: Final = 20
_DEFAULT_KEYS: Final = {6: 0b1010, 5: 0b0001, 8: 0b0110}
_KEY_SETS: Final = (0b0001, 0b0011, 0b0011, 0b0111, 0b0100, 0b1010, 0b0010, 0b0101)
"""Bits by the order of ``KEYS``: one to three keys."""

_LAST_LEVEL: Final = 8
_WITH_USER: Final = (1, 2, 3)
_WITH_DEFAULT_USER: Final = (4, 5, 6)
_WITH_CLIENT: Final = (1, 4, 7)
_WITH_DEFAULT_CLIENT: Final = (2, 5, 8)
_ENTITIES_A_FILE: Final = 250_000
_ALONE: Final = 1_000_000
"""From here on client-ids are numbered by pair: each belongs to one user only."""

NAMELESS_EVERY: Final = 500
"""One of so many users is seen without a name."""

NAMELESS: Final = 2


@dataclass(frozen=True)
class PairIds:
    """The numbers of a pair, of its user and of its client-id."""

    pair: Column
    user: Column
    client: Column


def user_name(index: Column) -> Column:
    """Return the name of a user by its number: never empty, different for different numbers."""
    plain = F.concat(F.lit("team-"), index % 97, F.lit(".svc-"), index)
    return _name_column(index, plain, _ODD_USERS)


def client_name(index: Column) -> Column:
    """Return the name of a client-id by its number, likewise."""
    plain = F.concat(F.lit("app-"), index % 31, F.lit("-"), index)
    return _name_column(index, plain, _ODD_CLIENTS)


def user_of_pair(pair: Column) -> Column:
    """Return the number of a pair's user; user 0 is the hot pair's."""
    return _div(pair, CLIENTS_A_USER) + 1


def client_of_pair(plan: Plan, pair: Column) -> Column:
    """Return the number of a pair's client-id; client-id 0 is the hot pair's."""
    user = user_of_pair(pair)
    shared = F.pmod(user * 3 + pair % CLIENTS_A_USER, F.lit(plan.clients)) + 1
    # Users without a name would share pairs, were their client-ids shared.
    return F.when(user % NAMELESS_EVERY == NAMELESS, pair + _ALONE).otherwise(shared)


def limit_of(plan: Plan, ids: PairIds, key: Column) -> Column:
    """Return the value that limits a pair whose names are not empty; null where nothing does.

    Source: the eight levels of ClientQuotaManager.
    """
    candidates = []
    for level in range(1, _LAST_LEVEL + 1):
        number = _number_at(level, ids)
        has = _exists(plan, level, number) & _has_key(plan, level, number, key)
        candidates.append(F.when(has, _value(plan, level, number, key)))
    return F.coalesce(*candidates)


def quotas(session: SparkSession, plan: Plan) -> DataFrame:
    """Return quota_version: as many entities as planned, each with one to three keys."""
    levels = [
        _of_level(session, plan, level, count)
        for level, count in entities_of_levels(plan.entities).items()
        if count
    ]
    return reduce(DataFrame.unionByName, levels)


def entities_of_levels(entities: int) -> Mapping[int, int]:
    """Return how many of the entities are of each level."""
    others = max(0, entities - len(DEFAULTS))
    named = {
        level: others // _BLOCK * many + min(many, max(0, others % _BLOCK - first))
        for level, (first, many) in _KINDS.items()
    }
    return named | {level: int(entities > number) for level, number in DEFAULTS.items()}


def _of_level(session: SparkSession, plan: Plan, level: int, count: int) -> DataFrame:
    numbers = session.range(0, count, 1, -(-count // _ENTITIES_A_FILE))
    number = F.col("id") * _every(level)
    entries = F.filter(_entries(plan, level, F.col("id")), lambda item: item.isNotNull())
    keyed = numbers.select(*_entity(plan, level, number), F.explode(entries).alias("entry"))
    return keyed.select(
        F.lit(plan.cluster).alias("cluster_id"),
        *("user", "user_default", "client_id", "client_default", "entry.key", "entry.value"),
        F.date_sub(F.lit(plan.start.date()), 1).cast("timestamp").alias("valid_from"),
        F.lit(None).cast("timestamp").alias("valid_to"),
        F.lit("snapshot").alias("origin"),
        F.lit(None).cast("bigint").alias("audit_seq"),
        F.lit(None).cast("string").alias("alteration_id"),
    )


def _entity(plan: Plan, level: int, number: Column) -> list[Column]:
    pair = level == 1
    user = user_name(user_of_pair(number) if pair else number)
    client = client_name(client_of_pair(plan, number) if pair else number)
    return [
        (user if level in _WITH_USER else F.lit("")).alias("user"),
        F.lit(level in _WITH_DEFAULT_USER).alias("user_default"),
        (client if level in _WITH_CLIENT else F.lit("")).alias("client_id"),
        F.lit(level in _WITH_DEFAULT_CLIENT).alias("client_default"),
    ]


def _entries(plan: Plan, level: int, number: Column) -> Column:
    """Return the keys with their values; null for a key that the entity has not."""
    entries = []
    for index, name in enumerate(KEYS):
        key = F.lit(index)
        entry = F.struct(F.lit(name).alias("key"), _value(plan, level, number, key).alias("value"))
        entries.append(F.when(_has_key(plan, level, number, key), entry))
    return F.array(*entries)


def _number_at(level: int, ids: PairIds) -> Column:
    """Return the number, among those of its level, of the entity that a pair could match."""
    numbers = {1: ids.pair, 2: ids.user, 3: ids.user, 4: ids.client, 7: ids.client}
    found = numbers.get(level, F.lit(0).cast("bigint"))
    every = _every(level)
    return F.when(found % every == 0, _div(found, every)) if every > 1 else found


def _every(level: int) -> int:
    """Return which share of the pairs, users or client-ids may have an entity of a level."""
    return {1: 2, 2: 3, 4: 2}.get(level, 1)


def _exists(plan: Plan, level: int, number: Column) -> Column:
    return number.between(0, entities_of_levels(plan.entities)[level] - 1)


def _hash(plan: Plan, level: int, number: Column, what: Column) -> Column:
    return F.xxhash64(F.lit(plan.seed).cast("bigint"), F.lit(level), number.cast("bigint"), what)


def _has_key(plan: Plan, level: int, number: Column, key: Column) -> Column:
    if level in _DEFAULT_KEYS:
        bits = F.lit(_DEFAULT_KEYS[level])
    else:
        sets = F.array(*(F.lit(item) for item in _KEY_SETS))
        drawn = _hash(plan, level, number, F.lit("keys"))
        bits = F.get(sets, F.pmod(drawn, F.lit(len(_KEY_SETS))))
    return F.call_function("shiftright", bits, key).bitwiseAND(F.lit(1)) == 1


def _value(plan: Plan, level: int, number: Column, key: Column) -> Column:
    drawn = _hash(plan, level, number, key.cast("int"))
    bytes_per_s = F.lit(65536) * F.pow(F.lit(2), F.pmod(drawn, F.lit(8)))
    percent = F.lit(5) * (F.pmod(drawn, F.lit(20)) + 1)
    mutations = (F.pmod(drawn, F.lit(50)) + 1) / F.lit(2)
    value = F.when(key < 2, bytes_per_s).when(key == 2, percent).otherwise(mutations)
    return value.cast("double")


def _div(number: Column, by: int) -> Column:
    return F.call_function("div", number, F.lit(by).cast("bigint"))


def _name_column(index: Column, plain: Column, odd: dict[int, str]) -> Column:
    named = F.when(index == _LOOKALIKE, F.lit(DEFAULT_LOOKALIKE))
    for remainder, pattern in odd.items():
        before, _, after = pattern.partition("{}")
        name = F.concat(F.lit(before), index, F.lit(after))
        named = named.when(index % _EVERY == remainder, name)
    return named.otherwise(plain)
