"""``/analytics/…`` in SQL: each listing with its conditions, in an order that pages follow."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import count
from typing import Any, Final

from app.domain.entities import ClientQuotaFilter, ClientQuotaFilterComponent, EntityType, MatchType
from app.domain.errors import BadPageTokenError
from app.service.queries.analytics import COLUMNS, AnalyticsQuery, Position, Result, Row


@dataclass(frozen=True, slots=True)
class _Order:
    """One expression of an order: its type, and whether the largest comes first."""

    expression: str
    kind: str
    falling: bool = False


_ORDERS: Final[Mapping[Result, tuple[_Order, ...]]] = {
    Result.UTILIZATION: (
        _Order("t.dt", "date", falling=True),
        _Order("coalesce(t.util_p99, -1)", "double precision", falling=True),
        _Order("t.bucket_id", "bigint"),
        _Order("coalesce(t.broker_id, -1)", "integer"),
    ),
    Result.INCIDENTS: (
        _Order("t.start", "timestamptz", falling=True),
        _Order("t.incident_id", "text"),
    ),
    Result.HOURS: (_Order("t.hour", "timestamptz"), _Order("t.broker_id", "integer")),
    Result.RUNS: (_Order("t.seq", "bigint", falling=True),),
}
"""The fullest bucket of the newest day, the newest incident, the oldest hour, the newest run;
all rows of a listing are of one cluster."""


def _whole_number(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text[:_INT_DIGITS])
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise ValueError
        return number

    return parse


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError
    return value.encode().decode()


_INT_DIGITS: Final = 25

_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": date.fromisoformat,
    "timestamptz": lambda text: datetime.fromisoformat(text).astimezone(UTC),
    "double precision": float,
    "bigint": _whole_number(64),
    "integer": _whole_number(32),
    "text": _text,
}
"""Positions are text, as Postgres writes the types."""

_NAMES: Final = {
    EntityType.USER.value: ("user", "quota_user", "quota_user_default"),
    EntityType.CLIENT_ID.value: ("client", "quota_client_id", "quota_client_default"),
}


@dataclass(slots=True)
class Statement:
    """SQL with the values of its parameters."""

    sql: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def bind(self, value: Any) -> str:
        """Return the placeholder for a value."""
        name = f"v{next(self._numbers)}"
        self.values[name] = value
        return f":{name}"


def page_statement(query: AnalyticsQuery) -> Statement:
    """Return the rows that meet the conditions, one more than the page takes.

    The columns of the order follow those of the table, as text.
    """
    statement = Statement()
    order = _ORDERS[query.table]
    columns = [quoted(name) for name in COLUMNS[query.table]]
    positions = [f"{key.expression}::text as key_{n}" for n, key in enumerate(order)]
    conditions = [*_conditions(query, statement)]
    if query.after is not None:
        conditions.append(_further_than(order, query.after, statement))
    where = " and ".join(["true", *conditions])
    by = ", ".join(f"{key.expression}{' desc' if key.falling else ''}" for key in order)
    statement.sql = (
        f"select {', '.join([*columns, *positions])} from {query.table.value} t "  # noqa: S608
        f"where {where} order by {by} limit {statement.bind(query.limit + 1)}"
    )
    return statement


def position_of(query: AnalyticsQuery, row: Row) -> Position:
    """Return where a row of the statement stands in the order."""
    return tuple(row[f"key_{n}"] for n in range(len(_ORDERS[query.table])))


def quoted(column: str) -> str:
    """Return a column of the table ``t``; some are words of SQL."""
    return f't."{column}"'


def _further_than(order: tuple[_Order, ...], after: Position, statement: Statement) -> str:
    """Compare with a position that a caller may have made up.

    Raises:
        BadPageTokenError: It is no position in this order.
    """
    try:
        values = [_PARSERS[key.kind](str(value)) for key, value in zip(order, after, strict=True)]
    except (ValueError, TypeError, OverflowError):
        raise BadPageTokenError from None
    bounds = [
        f"cast({statement.bind(value)} as {key.kind})"
        for key, value in zip(order, values, strict=True)
    ]
    alternatives = []
    for n, key in enumerate(order):
        equal = [f"{each.expression} = {bounds[m]}" for m, each in enumerate(order[:n])]
        alternatives.append(
            " and ".join([*equal, f"{key.expression} {'<' if key.falling else '>'} {bounds[n]}"])
        )
    return f"({' or '.join(f'({alternative})' for alternative in alternatives)})"


def _conditions(query: AnalyticsQuery, statement: Statement) -> Iterator[str]:
    cluster_id = statement.bind(query.cluster_id)
    column = "t.cluster_id"
    if query.table is Result.RUNS:
        column = f"coalesce({column}, {cluster_id})"
    yield f"{column} = {cluster_id}"
    for column, value in (("key", query.key), ("bucket_id", query.bucket_id)):
        if value is not None:
            yield _equals(quoted(column), value, statement)
    if query.min_util_p99 is not None:
        yield f"t.util_p99 >= {statement.bind(query.min_util_p99)}"
    yield from _period(query, statement)
    if query.entity is not None:
        yield _of_entity(query.entity, statement)


def _equals(column: str, value: str | int, statement: Statement) -> str:
    # Postgres keeps no U+0000 in text and refuses the question.
    if isinstance(value, str) and "\0" in value:
        return "false"
    return f"{column} = {statement.bind(value)}"


def _period(query: AnalyticsQuery, statement: Statement) -> Iterator[str]:
    since, until = query.since, query.until
    if query.table is Result.UTILIZATION:
        if since is not None:
            yield f"t.dt >= {statement.bind(since.astimezone(UTC).date())}"
        if until is not None:
            yield f"t.dt <= {statement.bind(_last_day(until))}"
        return
    begins, ends = (
        ("t.start", 't."end" >') if query.table is Result.INCIDENTS else ("t.hour", "t.hour >=")
    )
    if since is not None:
        yield f"{ends} {statement.bind(since)}"
    if until is not None:
        yield f"{begins} < {statement.bind(until)}"


def _last_day(until: datetime) -> date:
    """Return the last day that begins before a time."""
    utc = until.astimezone(UTC)
    whole = utc.time() == time() and utc.date() > date.min
    return utc.date() - timedelta(days=1) if whole else utc.date()


def _of_entity(quota_filter: ClientQuotaFilter, statement: Statement) -> str:
    """Ask whether the entity whose quota limits, or the bucket's own names, meet the filter."""
    components = quota_filter.components
    quota = " and ".join(["d.level > 0", *(_quota_component(c, statement) for c in components)])
    names = " and ".join(["true", *(_bucket_component(c, statement) for c in components)])
    return (
        "exists (select from dim_bucket d where d.bucket_id = t.bucket_id "
        "and d.cluster_id = t.cluster_id and d.level = t.level "
        f"and (({quota}) or ({names})))"
    )


def _quota_component(component: ClientQuotaFilterComponent, statement: Statement) -> str:
    if component.entity_type not in _NAMES:
        return _of_no_bucket(component)
    _, name, default = _NAMES[component.entity_type]
    is_default, text = f"coalesce(d.{default}, false)", f"coalesce(d.{name}, '')"
    match component.match_type:
        case MatchType.DEFAULT:
            return is_default
        case MatchType.SPECIFIED:
            return f"({is_default} or {text} <> '')"
        case MatchType.ABSENT:
            return f"(not {is_default} and {text} = '')"
        case _:
            return f"(not {is_default} and {_name_condition(text, component, statement)})"


def _bucket_component(component: ClientQuotaFilterComponent, statement: Statement) -> str:
    if component.entity_type not in _NAMES:
        return _of_no_bucket(component)
    text = f"d.bucket_{_NAMES[component.entity_type][0]}"
    match component.match_type:
        case MatchType.DEFAULT:
            return "false"
        case MatchType.SPECIFIED:
            return f"{text} <> ''"
        case MatchType.ABSENT:
            return f"{text} = ''"
        case _:
            return _name_condition(text, component, statement)


def _name_condition(
    column: str, component: ClientQuotaFilterComponent, statement: Statement
) -> str:
    wanted = component.match or ""
    if "\0" in wanted:
        return "false"
    if component.match_type is MatchType.EXACT:
        return f"({column} <> '' and {column} = {statement.bind(wanted)})"
    if component.match_type is MatchType.CONTAINS:
        lowered = f"lower({statement.bind(wanted)})"
        return f"({column} <> '' and strpos(lower({column}), {lowered}) > 0)"
    return f"({column} <> '' and starts_with({column}, {statement.bind(wanted)}))"


def _of_no_bucket(component: ClientQuotaFilterComponent) -> str:
    return "true" if component.match_type is MatchType.ABSENT else "false"
