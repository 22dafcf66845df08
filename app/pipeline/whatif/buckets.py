"""Which buckets an alteration touches, who their members are, and what cannot be known.

Names are looked up, never minutes: under the quotas of now and under those that are proposed, by
the same look-up as ``resolve``.

Metrics of a bucket have its tags alone: of (alice, '') nobody knows which clients of alice are in
it. As long as all of them stay in one bucket, that does not matter. Where they would be split,
nothing is claimed of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from app.domain.alterations import Quotas
from app.domain.entities import EntityType
from app.domain.plan_impact import ANY_OTHER
from app.domain.resolution_levels import PRECEDENCE, Slot
from app.domain.throttling import TOKEN_KEY
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.tasks import name_entities, resolve
from app.pipeline.resolve.versions import Versions
from app.pipeline.usage.incidents import PAIR
from app.pipeline.usage.measures import usable_limit

EXACT, OF_BUCKET, INDETERMINATE = "exact", "bucket", "indeterminate"
_NEVER: Final = len(PRECEDENCE) + 1
"""Behind all levels: of what nothing limits."""

_USER, _CLIENT_ID = EntityType.USER.value, EntityType.CLIENT_ID.value
_DECIDED: Final = ("level", "limit", "bucket_id", "bucket_user", "bucket_client", "several")


class Touched(NamedTuple):
    """What an alteration touches.

    Attributes:
        members: ``series_id``, ``bucket_id``, ``in_now`` and ``in_new`` (whether the series spends
            from it), ``limit_now`` and ``limit_new`` (null for none) and ``has_tokens``.
        buckets: A row for each: ``bucket_id``, ``key``, its tags, the entity of its new limit,
            levels, limits, ``knows_now`` and ``knows_new`` (whether it is clear what its members
            spend from), and ``fidelity``.
    """

    members: DataFrame
    buckets: DataFrame


def find_touched(
    series: DataFrame, versions: Sequence[DataFrame], quotas: Sequence[Quotas]
) -> Touched:
    """Find the buckets whose limit or members would change.

    Args:
        series: ``cluster_id, series_id, key, user, client_id, grain``, each once, of one cluster
            and of keys that are altered.
        versions: ``quota_version`` of the quotas of now, and of those proposed.
        quotas: The same as values by entity.
    """
    # Each is small, and its plan long: what follows is planned anew from its rows.
    decided = _decide(series, versions).localCheckpoint()
    splits = _splitting(decided, quotas)
    ids = series.sparkSession.createDataFrame([(each,) for each in splits], "series_id bigint")
    marked = decided.join(sf.broadcast(ids.withColumn("splits", sf.lit(True))), "series_id", "left")
    is_split = sf.coalesce("splits", sf.lit(False)) | sf.col("several_now") | sf.col("several_new")
    found = marked.withColumn("splits", is_split)
    members = _members(found.withColumns(_without_claims())).localCheckpoint()
    columns = ("series_id", "bucket_id", "in_now", "in_new", "limit_now", "limit_new")
    has_tokens = (sf.col("key") == TOKEN_KEY.value).alias("has_tokens")
    return Touched(members.select(*columns, has_tokens), _buckets(members).localCheckpoint())


def _decide(series: DataFrame, versions: Sequence[DataFrame]) -> DataFrame:
    """Look up each name under both quotas: what was decided has ``_now`` and ``_new``.

    An open name stands for any that is in no quota; ``several_…`` says that each of those would
    have a bucket of its own.
    """
    names = {
        name: sf.when(_is_open() & (sf.col(name) == ""), ANY_OTHER).otherwise(sf.col(name))
        for name in ("user", "client_id")
    }
    own = series.withColumns({f"own_{name}": sf.col(name) for name in names})
    frame = own.withColumns(names).withColumn("ts", sf.expr("timestamp '2000-01-01 00:00:00'"))
    for side, rows in zip(("now", "new"), versions, strict=True):
        frame = resolve(frame, LookUp.of(Versions.latest(rows.toArrow())))
        frame = frame.withColumn("limit", usable_limit(sf.col("limit")))
        is_several = " or ".join(
            f"(bucket_{tag} <> '' and own_{name} = '')"
            for tag, name in (("user", "user"), ("client", "client_id"))
        )
        frame = frame.withColumn(
            "several", sf.expr(f"`limit` is not null and grain <> '{PAIR}' and ({is_several})")
        )
        for name in _DECIDED:
            frame = frame.withColumnRenamed(name, f"{name}_{side}")
    return frame


def _is_open() -> Column:
    """Tell whether a series is the sum of callers with any name of one type."""
    has_single = (sf.col("user") == "") != (sf.col("client_id") == "")
    return (sf.col("grain") != PAIR) & has_single


def _splitting(decided: DataFrame, quotas: Sequence[Quotas]) -> list[int]:
    """Return the open series of whose callers some would leave the bucket that they share."""
    is_open = "(own_user = '') <> (own_client_id = '')"
    rows = decided.where(sf.col("grain") != PAIR).where(is_open)
    names = NamesOfQuotas(*quotas)
    columns = ("series_id", "key", "own_user", "own_client_id", "level_now", "level_new")
    found = rows.select(*columns).toArrow()
    return [
        row["series_id"]
        for batch in found.to_batches()
        for row in batch.to_pylist()
        if may_split(
            names.levels(row["key"], row["own_user"], row["own_client_id"]),
            row["level_now"] or _NEVER,
            row["level_new"] or _NEVER,
        )
    ]


def may_split(levels: Iterable[tuple[int, int]], now: int, new: int) -> bool:
    """Tell whether a name has a quota that goes before that of the others, and had none before.

    Args:
        levels: Of each name the first level with a quota of its own, before and after.
        now: The level that limits the others.
        new: The same, afterwards.
    """
    return any(after < new and before >= now for before, after in levels)


class NamesOfQuotas:
    """The levels of the names in quotas, before and after.

    Of a name beside another one, as etl beside alice, and of names that have a quota whoever is
    beside them: there only the levels matter.
    """

    def __init__(self, before: Quotas, after: Quotas) -> None:
        self._beside: dict[tuple[str, str, str], dict[str, list[int]]] = defaultdict(dict)
        alone: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(dict)
        for side, quotas in enumerate((before, after)):
            for kind, own, name, key, level in _named(quotas):
                named = alone[key, kind] if own is None else self._beside[key, kind, own]
                levels = named.setdefault(name, [_NEVER, _NEVER])
                levels[side] = min(levels[side], level)
        self._alone: dict[tuple[str, str], set[tuple[int, int]]] = {
            of: {(each[0], each[1]) for each in names.values()} for of, names in alone.items()
        }

    def levels(self, key: str, user: str, client_id: str) -> Iterator[tuple[int, int]]:
        """Yield the levels before and after of the names that callers of a series may have."""
        kind, own = (_USER, user) if user else (_CLIENT_ID, client_id)
        yield from ((each[0], each[1]) for each in self._beside.get((key, kind, own), {}).values())
        yield from self._alone.get((key, kind), set())


def _named(quotas: Quotas) -> Iterator[tuple[str, str | None, str, str, int]]:
    """Yield each name in a quota: the other type and its name, the name, the key and the level."""
    for entity, values in quotas.items():
        names = entity.as_dict()
        level = _LEVELS.get((_slot(names, _USER), _slot(names, _CLIENT_ID)))
        for kind, other in ((_USER, _CLIENT_ID), (_CLIENT_ID, _USER)):
            name = names.get(other)
            if level is not None and name is not None:
                for key in values:
                    yield kind, names.get(kind), name, key, level


_LEVELS: Final = {(row.user, row.client_id): row.level for row in PRECEDENCE}


def _slot(names: Mapping[str, str | None], kind: str) -> Slot:
    if kind not in names:
        return Slot.ABSENT
    return Slot.DEFAULT if names[kind] is None else Slot.NAMED


def _without_claims() -> dict[str, Column]:
    """Leave out what is unknown of series that are split: their limits, and made-up tags."""
    id_now = sf.xxhash64("cluster_id", "key", "own_user", "own_client_id")
    several, splits = sf.col("several_now"), sf.col("splits")
    none = sf.lit(None)
    return {
        "bucket_id_now": sf.when(splits, id_now).otherwise(sf.col("bucket_id_now")),
        "bucket_user_now": sf.when(splits, sf.col("own_user")).otherwise(sf.col("bucket_user_now")),
        "bucket_client_now": sf.when(splits, sf.col("own_client_id")).otherwise(
            sf.col("bucket_client_now")
        ),
        "limit_now": sf.when(several, none).otherwise(sf.col("limit_now")),
        "limit_new": sf.when(splits, none).otherwise(sf.col("limit_new")),
        "level_now": sf.when(several, none).otherwise(sf.col("level_now")),
        "level_new": sf.when(splits, none).otherwise(sf.col("level_new")),
    }


def _members(found: DataFrame) -> DataFrame:
    """Return the series of the buckets that are touched, once for each bucket of theirs."""
    rows = found.selectExpr(
        *("series_id", "key", "grain", "splits", "several_now", "own_user", "own_client_id"),
        *("level_now", "level_new", "limit_now", "limit_new"),
        "splits or not (limit_now <=> limit_new) or (limit_now is not null and bucket_id_now <> "
        "bucket_id_new) as is_touched",
        # Twice for one that changes its bucket, or leaves all that limit it.
        "explode(array("
        "named_struct('bucket_id', if(limit_now is not null or splits, bucket_id_now, null), "
        "'user', bucket_user_now, 'client', bucket_client_now, 'is_new', false),"
        "named_struct('bucket_id', if(limit_new is not null, bucket_id_new, null), "
        "'user', bucket_user_new, 'client', bucket_client_new, 'is_new', true))) as bucket",
    )
    own = rows.where("bucket.bucket_id is not null").selectExpr(
        *(name for name in rows.columns if name != "bucket"),
        *("bucket.bucket_id", "bucket.user as bucket_user", "bucket.client as bucket_client"),
        "bucket.is_new",
    )
    touched = own.where("is_touched").select("bucket_id").distinct()
    others = [name for name in own.columns if name not in {"is_touched", "is_new", "bucket_id"}]
    return (
        own.join(sf.broadcast(touched), "bucket_id", "left_semi")
        .groupBy("bucket_id", *others)
        .agg(sf.bool_or(~sf.col("is_new")).alias("in_now"), sf.bool_or("is_new").alias("in_new"))
    )


def _buckets(members: DataFrame) -> DataFrame:
    """Return the buckets that members spend from, now or then, with what is clear of them."""
    sides = {}
    for side in ("now", "new"):
        limits = f"struct(level_{side}, limit_{side})"
        same = f"if(count(distinct {limits}) = 1, any_value({limits}), null)"
        own = f"any_value({limits}) filter (where in_{side})"
        sides[f"is_{side}"] = f"coalesce({own}, {same})"
        sides[f"knows_{side}"] = f"bool_or(in_{side}) or bool_and(limit_{side} is null)"
    grouped = members.groupBy("bucket_id", "key", "bucket_user", "bucket_client").agg(
        *(sf.expr(item).alias(name) for name, item in sides.items()),
        sf.bool_or("splits").alias("splits"),
        sf.bool_or("several_now").alias("several_now"),
        sf.bool_and(sf.col("grain") == PAIR).alias("is_exact"),
    )
    splits = members.where("splits").select("key", "own_user", "own_client_id").distinct()
    # Who leaves a bucket may come into another one of the same name.
    receives = grouped.join(
        sf.broadcast(splits.withColumnRenamed("key", "own_key")),
        sf.expr(
            "key = own_key and ((own_user <> '' and own_user = bucket_user) or "
            "(own_client_id <> '' and own_client_id = bucket_client))"
        ),
        "left_semi",
    ).select("bucket_id", sf.lit(True).alias("receives"))
    rows = grouped.join(sf.broadcast(receives), "bucket_id", "left").selectExpr(
        *("bucket_id", "key", "bucket_user", "bucket_client"),
        *("is_now.level_now", "is_new.level_new", "is_now.limit_now", "is_new.limit_new"),
        "knows_now and not several_now as knows_now",
        "knows_new and not splits and receives is null as knows_new",
        f"case when splits or receives then '{INDETERMINATE}' when is_exact then '{EXACT}' "
        f"else '{OF_BUCKET}' end as fidelity",
    )
    return name_entities(rows, "level_new")
