"""``/analytics/…`` in SQL: each listing with its conditions, in an order that pages follow."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Date,
    DateTime,
    Double,
    FromClause,
    Integer,
    Select,
    and_,
    column,
    exists,
    false,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    table,
    true,
)

from app.domain.entities import ClientQuotaFilter, ClientQuotaFilterComponent, EntityType, MatchType
from app.domain.errors import BadPageTokenError
from app.service.queries.analytics import (
    BUCKETS,
    COLUMNS,
    WHATIF_RUNS,
    AnalyticsQuery,
    Position,
    Result,
    Row,
)

_TIME: Final = DateTime(timezone=True)
_TYPES: Final[Mapping[str, Any]] = {
    "dt": Date,
    **dict.fromkeys(("start", "end", "hour", "since", "until", "at", "ts"), _TIME),
    **dict.fromkeys(("bucket_id", "seq"), BigInteger),
    **dict.fromkeys(("broker_id", "level", "level_new"), Integer),
    **dict.fromkeys(("util_p99", "factor", "share", "throttled_s_new"), Double),
}
"""Of what is compared with numbers and times."""


def _table(name: str, *more: str) -> FromClause:
    columns = (column(each, _TYPES.get(each)) for each in (*COLUMNS[name], *more))
    return table(name, *columns)


_days: Final = _table(Result.UTILIZATION)
_incidents: Final = _table(Result.INCIDENTS)
_hours: Final = _table(Result.HOURS)
runs: Final = _table(Result.RUNS, "seq")
buckets: Final = _table(BUCKETS)
_recommendations: Final = _table(Result.RECOMMENDATIONS)
_stale: Final = _table(Result.STALE)
_uncovered: Final = _table(Result.UNCOVERED)
_commits: Final = _table(Result.OVERCOMMIT)
_drift: Final = _table(Result.DRIFT)
_whatif: Final = _table(Result.WHATIF)
_minutes: Final = _table(Result.WHATIF_MINUTES)
whatif_runs: Final = _table(WHATIF_RUNS)

_LISTED: Final[Mapping[Result, FromClause]] = {
    Result.UTILIZATION: _days,
    Result.INCIDENTS: _incidents,
    Result.HOURS: _hours,
    Result.RUNS: runs,
    Result.RECOMMENDATIONS: _recommendations,
    Result.STALE: _stale,
    Result.UNCOVERED: _uncovered,
    Result.OVERCOMMIT: _commits,
    Result.DRIFT: _drift,
    Result.WHATIF: _whatif,
    Result.WHATIF_MINUTES: _minutes,
}

_NONE: Final[ColumnElement[int]] = literal_column("-1")
_ENTITY: Final = ("quota_user_default", "quota_user", "quota_client_default", "quota_client_id")


def _by_entity(rows: FromClause) -> tuple[tuple[ColumnElement[Any], bool], ...]:
    names = ("kind", *_ENTITY, "key")
    return tuple((rows.c[name], name.endswith("_default")) for name in names)


_ORDERS: Final[Mapping[Result, tuple[tuple[ColumnElement[Any], bool], ...]]] = {
    Result.UTILIZATION: (
        (_days.c.dt, True),
        (func.coalesce(_days.c.util_p99, _NONE), True),
        (_days.c.bucket_id, False),
        (func.coalesce(_days.c.broker_id, _NONE), False),
    ),
    Result.INCIDENTS: ((_incidents.c.start, True), (_incidents.c.incident_id, False)),
    Result.HOURS: ((_hours.c.hour, False), (_hours.c.broker_id, False)),
    Result.RUNS: ((runs.c.seq, True),),
    Result.RECOMMENDATIONS: (
        (func.coalesce(_recommendations.c.factor, _NONE), True),
        (_recommendations.c.bucket_id, False),
    ),
    Result.STALE: _by_entity(_stale),
    Result.UNCOVERED: (
        (func.coalesce(_uncovered.c.share, _NONE), True),
        (_uncovered.c.bucket_id, False),
    ),
    Result.OVERCOMMIT: ((_commits.c.broker_id, False), (_commits.c.direction, False)),
    Result.DRIFT: _by_entity(_drift),
    Result.WHATIF: (
        (func.coalesce(_whatif.c.throttled_s_new, _NONE), True),
        (_whatif.c.bucket_id, False),
        (_whatif.c.broker_id, False),
    ),
    Result.WHATIF_MINUTES: tuple(
        (_minutes.c[name], False) for name in ("bucket_id", "broker_id", "ts")
    ),
}
"""The fullest bucket of the newest day, the newest incident, the oldest hour, the newest run, the
largest change, the largest share, entities by name with defaults first, the longest throttling;
true where the largest comes first. All rows of a listing are of one cluster."""

_BigInt = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Int = Annotated[int, Field(ge=-(2**31), lt=2**31)]
_Text = Annotated[str, Field(pattern=r"\A[^\x00]*\z")]

_POSITIONS: Final[Mapping[Result, TypeAdapter[Any]]] = {
    Result.UTILIZATION: TypeAdapter(tuple[date, float, _BigInt, _Int]),
    Result.INCIDENTS: TypeAdapter(tuple[AwareDatetime, _Text]),
    Result.HOURS: TypeAdapter(tuple[AwareDatetime, _Int]),
    Result.RUNS: TypeAdapter(tuple[_BigInt]),
    **dict.fromkeys((Result.RECOMMENDATIONS, Result.UNCOVERED), TypeAdapter(tuple[float, _BigInt])),
    **dict.fromkeys(
        (Result.STALE, Result.DRIFT), TypeAdapter(tuple[_Text, bool, _Text, bool, _Text, _Text])
    ),
    Result.OVERCOMMIT: TypeAdapter(tuple[_Int, _Text]),
    Result.WHATIF: TypeAdapter(tuple[float, _BigInt, _Int]),
    Result.WHATIF_MINUTES: TypeAdapter(tuple[_BigInt, _Int, AwareDatetime]),
}
"""What a position has for each expression of the order; it is text in a page token."""

_NAMES: Final = {
    EntityType.USER.value: ("bucket_user", "quota_user", "quota_user_default"),
    EntityType.CLIENT_ID.value: ("bucket_client", "quota_client_id", "quota_client_default"),
}


def page_statement(query: AnalyticsQuery) -> Select[Any]:
    """Return the rows that meet the conditions, one more than the page takes.

    The columns of the order follow those of the table.
    """
    rows, order = _LISTED[query.table], _ORDERS[query.table]
    statement = select(
        *(rows.c[name] for name in COLUMNS[query.table]),
        *(expression.label(f"key_{n}") for n, (expression, _) in enumerate(order)),
    ).where(*_conditions(query, rows))
    if query.after is not None:
        statement = statement.where(_further_than(query.table, query.after))
    return statement.order_by(
        *(expression.desc() if falling else expression for expression, falling in order)
    ).limit(query.limit + 1)


def position_of(query: AnalyticsQuery, row: Row) -> Position:
    """Return where a row of the statement stands in the order."""
    return tuple(str(row[f"key_{n}"]) for n in range(len(_ORDERS[query.table])))


def of_cluster(cluster_id: str | None) -> ColumnElement[bool]:
    """A run without a cluster's id is about several, of which the service's may be one."""
    return func.coalesce(runs.c.cluster_id, cluster_id) == cluster_id


def _further_than(listed: Result, after: Position) -> ColumnElement[bool]:
    """Compare with a position that a caller may have made up.

    Raises:
        BadPageTokenError: It is no position in this order.
    """
    try:
        bounds = _POSITIONS[listed].validate_python(after)
    except ValidationError:
        raise BadPageTokenError from None
    equal: list[ColumnElement[bool]] = []
    further: list[ColumnElement[bool]] = []
    for (expression, falling), value in zip(_ORDERS[listed], bounds, strict=True):
        # SQLAlchemy knows no order of true and false themselves.
        bound = literal(value) if isinstance(value, bool) else value
        beyond = expression < bound if falling else expression > bound
        further.append(and_(*equal, beyond))
        equal.append(expression == bound)
    return or_(*further)


def _conditions(query: AnalyticsQuery, rows: FromClause) -> Iterator[ColumnElement[bool]]:
    if query.table is Result.RUNS:
        yield of_cluster(query.cluster_id)
    else:
        yield rows.c.cluster_id == query.cluster_id
    if query.key is not None:
        # Postgres keeps no U+0000 in text and refuses the question.
        yield false() if "\0" in query.key else rows.c.key == query.key
    if query.bucket_id is not None:
        yield rows.c.bucket_id == query.bucket_id
    for name, value in query.equal.items():
        yield rows.c[name] == value
    if query.min_util_p99 is not None:
        yield rows.c.util_p99 >= query.min_util_p99
    yield from _period(query)
    if query.entity is not None:
        yield _of_entity(rows, query.entity)


def _period(query: AnalyticsQuery) -> Iterator[ColumnElement[bool]]:
    if query.since is not None:
        yield _PERIODS[query.table][0](query.since)
    if query.until is not None:
        yield _PERIODS[query.table][1](query.until)


def _last_day(until: datetime) -> date:
    """Return the last day that begins before a time."""
    utc = until.astimezone(UTC)
    whole = utc.time() == time() and utc.date() > date.min
    return utc.date() - timedelta(days=1) if whole else utc.date()


_Bound = Callable[[datetime], ColumnElement[bool]]

_WITH_EVIDENCE: Final = (
    Result.RECOMMENDATIONS,
    Result.STALE,
    Result.UNCOVERED,
    Result.OVERCOMMIT,
)


def _evidence(rows: FromClause) -> tuple[_Bound, _Bound]:
    """Ask whether what a row rests on overlaps a period."""
    return (lambda since: rows.c.until > since, lambda until: rows.c.since < until)


_PERIODS: Final[Mapping[Result, tuple[_Bound, _Bound]]] = {
    Result.UTILIZATION: (
        lambda since: _days.c.dt >= since.astimezone(UTC).date(),
        lambda until: _days.c.dt <= _last_day(until),
    ),
    Result.INCIDENTS: (
        lambda since: _incidents.c.end > since,
        lambda until: _incidents.c.start < until,
    ),
    Result.HOURS: (lambda since: _hours.c.hour >= since, lambda until: _hours.c.hour < until),
    **{table: _evidence(_LISTED[table]) for table in _WITH_EVIDENCE},
    Result.DRIFT: (lambda since: _drift.c.at >= since, lambda until: _drift.c.at < until),
}
"""What belongs to a period, by its beginning and its end."""


def _of_entity(rows: FromClause, quota_filter: ClientQuotaFilter) -> ColumnElement[bool]:
    """Ask whether the entity whose quota limits, or the bucket's own names, meet the filter."""
    if "quota_user" in rows.c and "bucket_id" not in rows.c:
        return _all_of(quota_filter, _quota_component, rows)
    if "bucket_user" in rows.c:
        return _names_it(rows, quota_filter)
    same = (buckets.c[name] == rows.c[name] for name in ("bucket_id", "cluster_id", "level"))
    return exists().where(*same, _names_it(buckets, quota_filter))


def _names_it(rows: FromClause, quota_filter: ClientQuotaFilter) -> ColumnElement[bool]:
    level = rows.c.level if "level" in rows.c else rows.c.level_new
    quota = and_(level > 0, _all_of(quota_filter, _quota_component, rows))
    return or_(quota, _all_of(quota_filter, _bucket_component, rows))


_Condition = Callable[[ClientQuotaFilterComponent, FromClause], ColumnElement[bool]]


def _all_of(
    quota_filter: ClientQuotaFilter, condition: _Condition, rows: FromClause
) -> ColumnElement[bool]:
    each = (
        or_(*(condition(alternative, rows) for alternative in component.alternatives()))
        for component in quota_filter.components
    )
    return and_(true(), *each)


def _quota_component(
    component: ClientQuotaFilterComponent, rows: FromClause
) -> ColumnElement[bool]:
    if component.entity_type not in _NAMES:
        return _of_no_bucket(component)
    _, name, default = _NAMES[component.entity_type]
    is_default = func.coalesce(rows.c[default], false())
    return _component(component, is_default, func.coalesce(rows.c[name], ""))


def _bucket_component(
    component: ClientQuotaFilterComponent, rows: FromClause
) -> ColumnElement[bool]:
    if component.entity_type not in _NAMES:
        return _of_no_bucket(component)
    return _component(component, false(), rows.c[_NAMES[component.entity_type][0]])


def _of_no_bucket(component: ClientQuotaFilterComponent) -> ColumnElement[bool]:
    return true() if component.match_type is MatchType.ABSENT else false()


def _component(
    component: ClientQuotaFilterComponent, is_default: ColumnElement[bool], name: ColumnElement[Any]
) -> ColumnElement[bool]:
    """Ask for a name; the empty one is none."""
    match component.match_type:
        case MatchType.DEFAULT:
            return is_default
        case MatchType.SPECIFIED:
            return or_(is_default, name != "")
        case MatchType.ABSENT:
            return and_(not_(is_default), name == "")
        case _:
            return and_(not_(is_default), name != "", _named(component, name))


def _named(component: ClientQuotaFilterComponent, name: ColumnElement[Any]) -> ColumnElement[bool]:
    wanted = component.match or ""
    if "\0" in wanted:
        return false()
    if component.match_type is MatchType.EXACT:
        return name == wanted
    if component.match_type is MatchType.CONTAINS:
        return func.strpos(func.lower(name), func.lower(wanted)) > 0
    return func.starts_with(name, wanted)
