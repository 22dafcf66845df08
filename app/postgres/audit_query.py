"""``GET /audit`` in SQL: the starts of entities, newest first, each with its latest conclusion."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    Boolean,
    ColumnElement,
    FromClause,
    ScalarSelect,
    Select,
    and_,
    column,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    table,
    text,
    true,
)

from app.domain.alterations import Outcome
from app.domain.entities import (
    ENTITY_TYPES,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MatchType,
)
from app.domain.validation import MAX_NAME_BYTES
from app.postgres.payload import ABSENT, DEFAULT, NAME, name_bytes
from app.postgres.schema import audit_entity, audit_event
from app.service.ports.audit_log import AuditQuery

_INDEXED_BYTES: Final = 64
"""How much of a name the indexes hold."""

_MOST_APART: Final = timedelta(days=1)
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)
"""How far the time inside an id, by which the log is partitioned, may be from the log's own: the
service's clock differs by seconds, or production does not start."""

_request = audit_event.alias("request")
_started = audit_entity.alias("started")
_later = audit_entity.alias("later")
_ended = audit_entity.alias("ended")

_DENSE: Final = (None, Outcome.APPLIED, Outcome.UNKNOWN)
"""Outcomes that most rows have, or that no row says: found by going through the starts."""


def _same(what: str, rows: FromClause, others: FromClause) -> ColumnElement[bool]:
    names = ("received_at", "alteration_id", what)
    return and_(*(rows.c[name] == others.c[name] for name in names))


_is_start: Final = _request.c.seq == literal_column("0")

_LOCK: Final = table(
    "held_entity",
    *map(column, ("received_at", "alteration_id", "ordinal")),
    column("rests_on", Boolean()),
)

_is_held: Final = and_(
    _same("ordinal", _LOCK, _started), ~_LOCK.c.rests_on, _started.c.seq == literal_column("0")
)
"""An entity is held until it has a definite outcome: the locks are the index of those without."""


def audit_statement(query: AuditQuery) -> Select[Any]:
    """Return the rows that meet the conditions, one more than the page takes.

    The planner walks along an index, newest first: that of the requests, or where entities or
    rare outcomes are asked for theirs. What else belongs to a row is fetched by subqueries, not by
    joins, so that there is nothing to guess.
    """
    by_request = query.entity is None and query.outcome in (None, Outcome.APPLIED)
    of_request = _joined if by_request else _from_start
    statement = select(
        (_request if by_request else _started).c.at,
        _started.c.alteration_id,
        _started.c.ordinal,
        of_request(_request.c.payload).label("request"),
        _started.c.document.label("start"),
        _latest(_later.c.document).label("conclusion"),
    ).where(_started.c.seq == literal_column("0"), *_conditions(query, of_request))
    source = _started
    if by_request:
        statement = statement.join_from(_request, _started, _same("seq", _started, _request))
        statement = statement.where(_is_start)
        source = _request
    elif query.outcome == Outcome.UNKNOWN:
        statement = statement.join_from(_started, _LOCK, _is_held)
    elif query.outcome not in _DENSE:
        statement = statement.join_from(_started, _ended, _ended_with(query.outcome))
        source = _ended
    if query.outcome is not None and query.outcome in _DENSE:
        statement = statement.where(_outcome() == query.outcome)
    return (
        statement.where(*_source_conditions(query, source))
        .order_by(source.c.at.desc(), source.c.alteration_id.desc(), _started.c.ordinal)
        .limit(query.limit + 1)
    )


def _joined(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return column


def _from_start(column: ColumnElement[Any]) -> ColumnElement[Any]:
    same = _same("seq", _started, _request)
    return select(column).where(same, _is_start).correlate(_started).scalar_subquery()


def _latest(column: ColumnElement[Any]) -> ScalarSelect[Any]:
    return (
        select(column)
        .where(
            _same("ordinal", _later, _started),
            _later.c.seq > literal_column("0"),
            _later.c.verdict.is_not(None),
        )
        .order_by(_later.c.seq.desc())
        .limit(1)
        .scalar_subquery()
    )


def _outcome() -> ColumnElement[Any]:
    return func.coalesce(
        _latest(_later.c.verdict), _started.c.verdict, literal(Outcome.UNKNOWN.value)
    )


def _ended_with(outcome: str | None) -> ColumnElement[bool]:
    return and_(
        _same("ordinal", _ended, _started),
        _ended.c.verdict == outcome,
        _ended.c.seq == func.coalesce(_latest(_later.c.seq), literal_column("0")),
        text("ended.verdict <> 'applied'"),
    )


def _conditions(
    query: AuditQuery, of_request: Callable[[ColumnElement[Any]], ColumnElement[Any]]
) -> Iterator[ColumnElement[bool]]:
    if query.cluster_id is not None:
        of_cluster = _request if of_request is _joined else _started
        yield of_cluster.c.cluster_id == query.cluster_id
    if query.entity is not None:
        yield from _entity_conditions(query.entity)
    if query.actor is not None:
        # Postgres keeps no U+0000 in text and refuses the question.
        principal = of_request(_request.c.principal)
        yield false() if "\0" in query.actor else principal == query.actor
    if query.action is not None:
        yield of_request(_request.c.action) == query.action


def _source_conditions(query: AuditQuery, source: FromClause) -> Iterator[ColumnElement[bool]]:
    """Time and page, on the table whose index gives the order."""
    if query.since is not None:
        yield source.c.at >= query.since
    if query.until is not None:
        yield source.c.at < query.until
    for rows in dict.fromkeys((source, _started)):
        if query.since is not None and query.since - _EARLIEST > _MOST_APART:
            yield rows.c.received_at >= query.since - _MOST_APART
        if query.until is not None and _LATEST - query.until > _MOST_APART:
            yield rows.c.received_at < query.until + _MOST_APART
    if query.after is not None:
        yield from _further_than(source, *query.after)


def _further_than(
    source: FromClause, at: datetime, alteration_id: str, ordinal: int
) -> Iterator[ColumnElement[bool]]:
    same_time, same_request = source.c.at == at, source.c.alteration_id == UUID(alteration_id)
    yield source.c.at <= at
    yield or_(
        source.c.at < at,
        and_(same_time, source.c.alteration_id < UUID(alteration_id)),
        and_(same_time, same_request, _started.c.ordinal > ordinal),
    )


def _entity_conditions(quota_filter: ClientQuotaFilter) -> Iterator[ColumnElement[bool]]:
    yield _started.c.user_kind.is_not(None)
    for component in quota_filter.components:
        yield or_(*map(_component_condition, component.alternatives()))
    if quota_filter.strict:
        yield from _strict_conditions(quota_filter)


def _strict_conditions(quota_filter: ClientQuotaFilter) -> Iterator[ColumnElement[bool]]:
    wanted = {
        component.entity_type for component in quota_filter.components if component.names_type
    }
    yield _started.c.other_types.is_(False) if wanted else false()
    for kind in ENTITY_TYPES:
        column, _ = _columns(kind)
        yield column != ABSENT if kind in wanted else column == ABSENT


def _component_condition(component: ClientQuotaFilterComponent) -> ColumnElement[bool]:
    if component.entity_type not in tuple(ENTITY_TYPES):
        return true() if component.match_type is MatchType.ABSENT else false()
    kind, name = _columns(component.entity_type)
    match component.match_type:
        case MatchType.EXACT:
            wanted = name_bytes(component.match or "")
            return and_(kind == NAME, _beginning(name) == wanted[:_INDEXED_BYTES], name == wanted)
        case MatchType.DEFAULT:
            return kind == DEFAULT
        case MatchType.PREFIX:
            return and_(kind == NAME, *_prefix_conditions(name, name_bytes(component.match or "")))
        case MatchType.CONTAINS:
            return and_(kind == NAME, _contains_condition(name, component.match or ""))
        case MatchType.SPECIFIED:
            return kind != ABSENT
        case MatchType.ABSENT:
            return kind == ABSENT


def _prefix_conditions(name: ColumnElement[Any], prefix: bytes) -> Iterator[ColumnElement[bool]]:
    """UTF-8 never holds the byte 0xFF, so the last byte of a prefix can always be raised by 1."""
    if not prefix:
        return
    start = prefix[:_INDEXED_BYTES]
    yield _beginning(name) >= start
    yield _beginning(name) < start[:-1] + bytes([start[-1] + 1])
    yield func.substr(name, 1, len(prefix)) == prefix


def _contains_condition(name: ColumnElement[Any], wanted: str) -> ColumnElement[bool]:
    """Ask for names that contain a text in any case.

    Names are bytes, which may hold what Postgres refuses as text: they are matched in hexadecimal.
    A longer text than any name would be too large a regular expression.
    """
    if len(wanted) > MAX_NAME_BYTES:
        return false()
    letters = (
        "|".join(sorted({name_bytes(form).hex() for form in (letter.lower(), letter.upper())}))
        for letter in wanted
    )
    pattern = f"^(?:..)*{''.join(f'(?:{forms})' for forms in letters)}"
    return func.encode(name, "hex").regexp_match(pattern)


def _beginning(name: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.substr(name, literal_column("1"), literal_column(str(_INDEXED_BYTES)))


def _columns(entity_type: str) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    column = entity_type.replace("-", "_")
    return _started.c[f"{column}_kind"], _started.c[f"{column}_name"]
