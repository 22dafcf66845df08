"""``stale_quota``: which stored values do nothing, beside who was seen."""

import csv
import io
import json
from collections.abc import Callable, Collection
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

LONG_ENOUGH: Final = 0.9
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
    for cluster, with_data in evidence.days.items():
        since, until = evidence.period(cluster)
        of_cluster = pc.field("cluster_id") == cluster
        own = versions.filter(of_cluster & pc.field("value").is_valid())
        is_recent = (own["origin"].to_numpy(zero_copy_only=False) == AUDIT) & (
            own["valid_from"].cast(pa.int64()).to_numpy() > since.timestamp() * MICRO
        )
        may_be_silent = ~is_recent & (with_data >= LONG_ENOUGH * days)
        cluster_columns = ClusterColumns(own, seen.filter(of_cluster), may_be_silent)
        of_all = {"cluster_id": cluster, "days": with_data, "since": since, "until": until}
        tables.append(whole_table(STALE_QUOTA, cluster_columns.stale(days, inventory), **of_all))
    return pa.concat_tables(tables)


class ClusterColumns:
    """The values of one cluster, and who was seen there, as rows of numbers for names.

    Args:
        may_be_silent: Of each version, whether who was not seen tells anything of it.
    """

    def __init__(self, versions: pa.Table, seen: pa.Table, may_be_silent: Numbers) -> None:
        users, self._users = numbered(versions["user"], seen["user"])
        clients, self._clients = numbered(versions["client_id"], seen["client_id"])
        keys, self._keys = numbered(versions["key"], seen["key"])
        user, client = (
            np.select([versions[flag].to_numpy(), number != 0], [Slot.DEFAULT, Slot.NAMED])
            for flag, number in (("user_default", users[0]), ("client_default", clients[0]))
        )
        level = level_of_slots(user, client)
        stored = [keys[0], level, users[0], clients[0], versions["value"].to_numpy()]
        # Others are of addresses.
        chosen = np.flatnonzero(level)
        self._versions, self._may_be_silent = versions.take(chosen), may_be_silent[chosen]
        self._stored: Numbers = np.rec.fromarrays(stored, STORED)[chosen]
        last = seen["last_seen"].cast(pa.int64()).to_numpy()
        of_seen = [seen[name].to_numpy(zero_copy_only=False) for name in ("level", "is_pair")]
        callers = [keys[1], of_seen[0], users[1], clients[1], of_seen[1], last]
        self._seen: Numbers = np.rec.fromarrays(callers, SEEN)

    def stale(self, days: int, inventory: Collection[str] | None) -> pa.Table:
        """Return the columns of ``STALE_QUOTA`` but for cluster and period."""
        is_absent = np.zeros(len(self._stored), bool)
        if inventory is not None:
            there = pa.array(["", ANONYMOUS, *inventory])
            is_absent = ~pc.is_in(self._versions["user"], there).to_numpy()
        sizes = len(self._keys), len(self._users), len(self._clients)
        found = find_unused(self._stored, self._seen, sizes, is_absent, self._may_be_silent)
        own = self._versions.take(found.row).combine_chunks()
        level, user, client = (
            self._stored[name][found.row] for name in ("level", "user", "client")
        )
        kinds = pa.array([KINDS[cause].value for cause in CAUSES]).take(pa.array(found.cause))
        reasons = self._reasons(found, days)
        row, *winners = found.winners
        offsets = pa.array(np.searchsorted(row, np.append(found.row, _END)), pa.int32())
        lists = pa.ListArray.from_arrays(offsets, self._entities(*winners))
        columns = {
            "kind": kinds,
            **{name: own[name] for name in ("key", "value")},
            **{f"quota_{name}": own[name] for name in _ENTITY},
            "level": level,
            "reason": reasons,
            "winners": pc.binary_join_element_wise("[", pc.binary_join(lists, ", "), "]", ""),
            "last_seen": pa.array(found.last, mask=found.last == NEVER),
            "body": _bodies(kinds, reasons, self._entities(level, user, client), own),
        }
        return pa.table(columns)

    def _reasons(self, found: Unused, days: int) -> pa.Array:
        # Many of a cause are the same: what differs is the value that goes before, or the user.
        about = np.where(np.isin(found.cause, _SAME_FOR_ALL), 0, found.about)

        def reason(pair: int) -> str:
            cause, row = divmod(pair, len(self._stored))
            key, level, user, client, value = self._stored[row].item()
            entity = entity_at(level, self._users[user], self._clients[client])
            stored = Stored(entity or ClientQuotaEntity.of({}), self._keys[key], value)
            return stale_reason(CAUSES[cause], days, stored)

        return _texts(reason, pa.array(found.cause * len(self._stored) + about))

    def _entities(self, level: Numbers, user: Numbers, client: Numbers) -> pa.Array:
        """Return entities as JSON."""
        members = []
        for kind, slots, names, number in (
            ("client-id", CLIENT_ID_SLOT, self._clients, client),
            ("user", USER_SLOT, self._users, user),
        ):
            slot = slots[level]
            named = _texts(_json, pa.array(names, pa.string()).take(pa.array(number)))
            name = pc.if_else(pa.array(slot == Slot.NAMED), named, "null")
            member = pc.binary_join_element_wise(f'"{kind}": ', name, "")
            members.append(pc.if_else(pa.array(slot == Slot.ABSENT), None, member))
        both = pc.binary_join_element_wise(*members, ", ", null_handling="skip")
        return pc.binary_join_element_wise("{", both, "}", "")


_ENTITY: Final = ("user", "user_default", "client_id", "client_default")
_SAME_FOR_ALL: Final = [
    number
    for number, cause in enumerate(CAUSES)
    if cause in {Cause.NO_FALLBACK, Cause.NOT_SEEN, Cause.OTHERS_FIRST}
]
_END: Final = np.iinfo(np.int64).max
_json: Final = json.JSONEncoder(ensure_ascii=False).encode


def _bodies(kinds: pa.Array, reasons: pa.Array, entities: pa.Array, own: pa.Table) -> pa.Array:
    """Return what ``alteration_body`` does of values to remove, as JSON; entities are JSON, too."""
    both = pc.binary_join_element_wise(kinds, reasons, ": ")
    reason = _texts(lambda text: _json(log_reason(text)), both)
    key = _texts(_json, own["key"].combine_chunks())
    before = _texts(lambda value: _json(quota_value_json(value)), own["value"].combine_chunks())
    return pc.binary_join_element_wise(
        *('{"reason": ', reason, ', "alterations": [{"entity": ', entities),
        *(', "ops": [{"key": ', key, ', "remove": true}], "expected": {', key, ": ", before),
        *("}}]}", ""),
    )


def _texts(text: Callable[[Any], str], column: pa.Array) -> pa.Array:
    """Return the text of each value, which is made once of those that are the same."""
    encoded = column.dictionary_encode()
    return pa.array(map(text, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def _seen(evidence: Evidence) -> pa.Table:
    """Return who was seen with which key, at which level, and when last at any."""
    series = evidence.rows(SERIES, ("series_id", *_NAMES, "last_seen")).reduce(
        lambda rows: grouped(rows, ["series_id"], {"last_seen": "max"}, _NAMES)
    )
    limits = evidence.rows(SERIES_LIMIT, ("series_id", "level")).reduce(
        lambda rows: grouped(rows, ["series_id", "level"], {})
    )
    found = limits.join(series, "series_id", join_type="inner")
    return found.append_column("is_pair", pc.equal(found["grain"], PAIR))


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
