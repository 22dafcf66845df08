"""``stale_quota``: which stored values do nothing, beside who was seen."""

import csv
import io
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.domain.alterations import quota_value_json
from app.domain.entities import ClientQuotaEntity
from app.domain.idle_values import entity_at
from app.domain.resolution_levels import Slot
from app.domain.right_sizes import log_reason
from app.domain.stale_quotas import ANONYMOUS, KINDS, Cause, Stored, stale_reason
from app.pipeline.advice.evidence import Evidence
from app.pipeline.advice.judgement import numbered
from app.pipeline.advice.output import rows_to_table, whole_table
from app.pipeline.advice.unused import CAUSES, NEVER, SEEN, STORED, Unused, find_unused
from app.pipeline.advice.use import grouped
from app.pipeline.errors import UsageError
from app.pipeline.options import read_file
from app.pipeline.quota_history import AUDIT
from app.pipeline.resolve.levels import CLIENT_ID_SLOT, USER_SLOT, level_of_slots
from app.pipeline.tables import SERIES, SERIES_LIMIT, STALE_QUOTA
from app.pipeline.usage.incidents import PAIR
from app.pipeline.usage.measures import Numbers
from app.pipeline.whatif.model import MICRO

_LONG_ENOUGH: Final = 0.9
"""So many of the days must have data."""


def stale_values(
    evidence: Evidence,
    versions: pa.Table,
    days: int,
    inventory: Collection[str] | None,
) -> pa.Table:
    """Return ``STALE_QUOTA``.

    Args:
        versions: As ``read_versions`` returns them, those that have no end.
        days: Without traffic make a value unused.
        inventory: The users that there are; null where nobody says.
    """
    seen, tables = _seen(evidence), [rows_to_table(STALE_QUOTA, [])]
    for cluster in sorted(evidence.newest):
        since, until = evidence.period(cluster)
        with_data = evidence.days[cluster]
        of_cluster = pc.field("cluster_id") == cluster
        own = versions.filter(of_cluster & pc.field("value").is_valid())
        is_recent = (own["origin"].to_numpy(zero_copy_only=False) == AUDIT) & (
            own["valid_from"].cast(pa.int64()).to_numpy() > since.timestamp() * MICRO
        )
        is_long = with_data >= _LONG_ENOUGH * days
        callers = seen.filter(of_cluster)
        columns = ClusterColumns(own, callers).stale(days, inventory, is_long & ~is_recent)
        of_all = {"cluster_id": cluster, "days": with_data, "since": since, "until": until}
        tables.append(whole_table(STALE_QUOTA, columns, **of_all))
    return pa.concat_tables(tables)


class ClusterColumns:
    """The values of one cluster, and who was seen there, as rows of numbers for names."""

    def __init__(self, versions: pa.Table, seen: pa.Table) -> None:
        users, self._users = numbered(versions["user"], seen["user"])
        clients, self._clients = numbered(versions["client_id"], seen["client_id"])
        keys, self._keys = numbered(versions["key"], seen["key"])
        user, client = (
            np.select([versions[flag].to_numpy(), number != 0], [Slot.DEFAULT, Slot.NAMED])
            for flag, number in (("user_default", users[0]), ("client_default", clients[0]))
        )
        level = level_of_slots(user, client)
        stored = {
            "key": keys[0],
            "level": level,
            "user": np.where(user == Slot.NAMED, users[0], 0),
            "client": np.where(client == Slot.NAMED, clients[0], 0),
            "value": versions["value"].to_numpy(),
        }
        # Others are of addresses.
        self._chosen = np.flatnonzero(level)
        self._stored = _rows(STORED, stored)[self._chosen]
        of_seen = {
            "key": keys[1],
            "level": seen["level"].to_numpy(),
            "user": users[1],
            "client": clients[1],
            "is_pair": seen["is_pair"].to_numpy(zero_copy_only=False),
            "last": seen["last_seen"].cast(pa.int64()).to_numpy(),
        }
        self._seen = _rows(SEEN, of_seen)

    def stale(
        self, days: int, inventory: Collection[str] | None, may_be_silent: Numbers
    ) -> pa.Table:
        """Return the columns of ``STALE_QUOTA`` but for cluster and period.

        Args:
            days: As for ``stale_values``, as ``inventory`` is.
            may_be_silent: Of each version, whether who was not seen tells anything of it.
        """
        sizes = len(self._keys), len(self._users), len(self._clients)
        there = {"", ANONYMOUS, *(self._users if inventory is None else inventory)}
        is_absent = np.array([name not in there for name in self._users])[self._stored["user"]]
        silent = may_be_silent[self._chosen]
        found = find_unused(self._stored, self._seen, sizes, is_absent, silent)
        own = self._stored[found.row]
        level, value = own["level"], own["value"]
        keys = pa.array(self._keys, pa.string()).take(pa.array(own["key"]))
        reasons, log_reasons = self._reasons(found, days)
        entities = self._entities(level, own["user"], own["client"])
        columns = {
            "kind": pa.array([KINDS[cause].value for cause in CAUSES]).take(pa.array(found.cause)),
            "key": keys,
            "quota_user": _of_different(self._users.__getitem__, own["user"]),
            "quota_user_default": pa.array(USER_SLOT[level] == Slot.DEFAULT),
            "quota_client_id": _of_different(self._clients.__getitem__, own["client"]),
            "quota_client_default": pa.array(CLIENT_ID_SLOT[level] == Slot.DEFAULT),
            "level": level,
            "value": value,
            "reason": reasons,
            "winners": self._winners(found),
            "last_seen": pa.array(found.last, mask=found.last == NEVER),
            "body": _bodies(log_reasons, entities, keys, value),
        }
        return pa.table(columns)

    def _reasons(self, found: Unused, days: int) -> tuple[pa.Array, pa.Array]:
        """Return the sentences, and those of the bodies."""
        # Many of a cause are the same: what differs is the value that goes before, or the user.
        about = np.where(np.isin(found.cause, _SAME_FOR_ALL), 0, found.about)
        pairs = found.cause * len(self._stored) + about

        def reason(pair: int) -> str:
            cause, row = divmod(pair, len(self._stored))
            return stale_reason(CAUSES[cause], days, self._value(row))

        def of_log(pair: int) -> str:
            kind = KINDS[CAUSES[pair // len(self._stored)]]
            return log_reason(f"{kind}: {reason(pair)}")

        return _of_different(reason, pairs), _of_different(of_log, pairs)

    def _value(self, row: int) -> Stored:
        key, level, user, client, value = self._stored[row].item()
        entity = entity_at(level, self._users[user], self._clients[client])
        return Stored(entity or ClientQuotaEntity.of({}), self._keys[key], value)

    def _winners(self, found: Unused) -> pa.Array:
        """Return the entities that go before values, as JSON."""
        row, *names = found.winners
        offsets = pa.array(np.searchsorted(row, np.append(found.row, _END)), pa.int32())
        lists = pa.ListArray.from_arrays(offsets, self._entities(*names))
        return pc.binary_join_element_wise("[", pc.binary_join(lists, ", "), "]", "")

    def _entities(self, level: Numbers, user: Numbers, client: Numbers) -> pa.Array:
        """Return entities as JSON."""
        members = []
        for kind, slots, names, number in (
            ("client-id", CLIENT_ID_SLOT, self._clients, client),
            ("user", USER_SLOT, self._users, user),
        ):
            slot = slots[level]
            named = _texts(_of_different(names.__getitem__, number))
            name = pc.if_else(pa.array(slot == Slot.NAMED), named, "null")
            member = pc.binary_join_element_wise(f'"{kind}": ', name, "")
            members.append(pc.if_else(pa.array(slot == Slot.ABSENT), None, member))
        both = pc.binary_join_element_wise(*members, ", ", null_handling="skip")
        return pc.binary_join_element_wise("{", both, "}", "")


def _rows(kind: np.dtype[Any], columns: Mapping[str, Numbers]) -> Numbers:
    """Return columns as rows of a kind."""
    rows = np.empty(len(columns["key"]), kind)
    for name, column in columns.items():
        rows[name] = column
    return rows


_SAME_FOR_ALL: Final = [
    number
    for number, cause in enumerate(CAUSES)
    if cause in {Cause.NO_FALLBACK, Cause.NOT_SEEN, Cause.OTHERS_FIRST}
]
_END: Final = np.iinfo(np.int64).max
_json: Final = json.JSONEncoder(ensure_ascii=False).encode


def _bodies(reasons: pa.Array, entities: pa.Array, keys: pa.Array, values: Numbers) -> pa.Array:
    """Return what ``alteration_body`` does of values to remove, as JSON; entities are JSON, too."""
    reason, key = (_texts(column) for column in (reasons, keys))
    before = _of_different(lambda value: _json(quota_value_json(value)), values)
    return pc.binary_join_element_wise(
        *('{"reason": ', reason, ', "alterations": [{"entity": ', entities),
        *(', "ops": [{"key": ', key, ', "remove": true}], "expected": {', key, ": ", before),
        *("}}]}", ""),
    )


def _texts(column: pa.Array) -> pa.Array:
    """Return texts as JSON."""
    encoded = column.dictionary_encode()
    return pa.array(map(_json, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def _of_different(text: Callable[[Any], str], values: Numbers) -> pa.Array:
    """Return the text of each value, which is made once of those that are the same."""
    different, positions = np.unique(values, return_inverse=True)
    return pa.array(map(text, different.tolist()), pa.string()).take(pa.array(positions))


def _seen(evidence: Evidence) -> pa.Table:
    """Return who was seen with which key, at which level, and when last at any."""
    series = evidence.rows(SERIES, ("series_id", *_NAMES, "last_seen")).reduce(
        lambda rows: grouped(rows, ["series_id"], {"last_seen": "max"}, _NAMES)
    )
    limits = evidence.rows(SERIES_LIMIT, ("series_id", "level")).reduce(
        lambda rows: grouped(rows, ["series_id", "level"], {})
    )
    row = pc.index_in(limits["series_id"], series["series_id"])
    found = series.take(row).append_column("level", limits["level"].cast(pa.int64()))
    is_pair = pc.equal(found["grain"], PAIR)
    return found.append_column("is_pair", is_pair).filter(row.is_valid())


_NAMES: Final = ("cluster_id", "key", "user", "client_id", "grain")


def read_inventory(file: str) -> frozenset[str]:
    """Read the users that there are.

    A list of names or of objects with ``user`` in JSON, as ``GET /users/scram-credentials`` answers
    it; CSV with a column ``user``; or a name on each line. ``User:`` before a name is left out.

    Raises:
        UsageError: It is none of these.
    """
    text = read_file("--inventory", file)
    try:
        names = _names_of_json(text) if text.lstrip()[:1] in {"[", "{"} else _names_of_lines(text)
    except (ValueError, KeyError, TypeError) as error:
        message = (
            "The file of --inventory is no list of users: write names in JSON, a column `user` in "
            "CSV, or a name on each line."
        )
        raise UsageError(message) from error
    return frozenset(name.removeprefix("User:") for name in names if name)


def _names_of_json(text: str) -> list[str]:
    document = json.loads(text)
    items = document["users"] if isinstance(document, dict) else document
    names = [item["user"] if isinstance(item, dict) else item for item in items]
    if not all(isinstance(name, str) for name in names):
        raise TypeError
    return names


def _names_of_lines(text: str) -> list[str]:
    heading, _, _ = text.partition("\n")
    columns = [cell.strip() for cell in heading.split(",")]
    if "user" in columns:
        return [row["user"] or "" for row in csv.DictReader(io.StringIO(text))]
    return [line.strip() for line in text.splitlines()]
