"""The same look-ups in DuckDB, in its own SQL: a second opinion."""

from pathlib import Path
from typing import Final

import duckdb

from app.pipeline.tables import SERIES, Table
from benchmarks.pipeline.spark_arms import CAP, Answer

_QUOTAS: Final = """
    create or replace temp table quota as
    select cluster_id, key, value, case when user_default then '' else coalesce("user", '') end u,
      case when client_default then '' else coalesce(client_id, '') end c,
      case when user_default then 'd' when coalesce("user", '') <> '' then 'n' else 'a' end
      || case when client_default then 'd' when coalesce(client_id, '') <> '' then 'n' else 'a' end
      as shape
    from read_parquet('{data}/quota_version/**/*.parquet', hive_partitioning = true)
    where valid_to is null and value is not null
"""
"""``shape``: how user and client-id are named: by name, as default, or absent."""

_TABLES: Final = (
    """create or replace temp table by_pair as
       select cluster_id, key, u, c, value as v1 from quota where shape = 'nn'""",
    """create or replace temp table by_user as
       select cluster_id, key, u, max(value) filter (where shape = 'nd') as v2,
         max(value) filter (where shape = 'na') as v3
       from quota where shape in ('nd', 'na') group by all""",
    """create or replace temp table by_client as
       select cluster_id, key, c, max(value) filter (where shape = 'dn') as v4,
         max(value) filter (where shape = 'an') as v7
       from quota where shape in ('dn', 'an') group by all""",
    """create or replace temp table by_key as
       select cluster_id, key, max(value) filter (where shape = 'dd') as v5,
         max(value) filter (where shape = 'da') as v6,
         max(value) filter (where shape = 'ad') as v8
       from quota group by all""",
)

_RESOLVED: Final = """
    select *, case level when 1 then v1 when 2 then v2 when 3 then v3 when 4 then v4 when 5 then v5
        when 6 then v6 when 7 then v7 when 8 then v8 end as "limit"
    from (
      select o.*, v1, v2, v3, v4, v5, v6, v7, v8,
        case when o.u <> '' and o.c <> '' then
          case when v1 is not null then 1 when v2 is not null then 2 when v3 is not null then 3
            when v4 is not null then 4 when v5 is not null then 5 when v6 is not null then 6
            when v7 is not null then 7 when v8 is not null then 8 else 0 end
        when o.u <> '' then
          case when v3 is not null then 3 when v6 is not null then 6 else 0 end
        when o.c <> '' and (v6 is null or v4 is not null or v5 is not null) then
          case when v7 is not null then 7 when v8 is not null then 8 else 0 end
        else 0 end as level
      from (
        select *, coalesce("user", '') as u, coalesce(client_id, '') as c
        from read_parquet('{data}/{table}/**/*.parquet', hive_partitioning = true)
      ) as o
      left join by_pair as p on p.cluster_id = o.cluster_id and p.key = o.key and p.u = o.u
        and p.c = o.c
      left join by_user as s on s.cluster_id = o.cluster_id and s.key = o.key and s.u = o.u
      left join by_client as t on t.cluster_id = o.cluster_id and t.key = o.key and t.c = o.c
      left join by_key as k on k.cluster_id = o.cluster_id and k.key = o.key
    )
"""

_ANSWER: Final = """
    select level, key, count(*), sum(cast(floor(least("limit", {cap})) as bigint))
    from ({resolved}) group by all
"""


def connected(threads: int) -> duckdb.DuckDBPyConnection:
    """Return an engine in memory, bound to so many threads."""
    return duckdb.connect(config={"threads": threads})


def look_ups(engine: duckdb.DuckDBPyConnection, data: Path, *, table: Table = SERIES) -> Answer:
    """Find the limit of each row of a table, the making of the tables of quotas included."""
    for statement in (_QUOTAS.format(data=data), *_TABLES):
        engine.execute(statement)
    resolved = _RESOLVED.format(data=data, table=table.name)
    rows = engine.execute(_ANSWER.format(cap=CAP, resolved=resolved))
    return {(level, key): (n, int(total or 0)) for level, key, n, total in rows.fetchall()}
