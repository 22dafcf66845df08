"""What would make results wrong or missing, seen in the data."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from app.pipeline.doctor.checks import Check, fail, ok, warn
from app.pipeline.doctor.tables import Inputs
from app.pipeline.tables import (
    BUCKET_MINUTE,
    OBSERVATION_MINUTE,
    QUARANTINE,
    QUOTA_VERSION,
    Table,
)

_RESOURCES: Final = {
    "producer_byte_rate": "Produce",
    "consumer_byte_rate": "Fetch",
    "request_percentage": "Request",
    "controller_mutation_rate": "ControllerMutation",
}
_ENCODED: Final = "%[0-9A-Fa-f]{2}"
_MOST_EMPTY: Final = 0.5
_MOST_UNLIMITED: Final = 0.5
_LEAST_COVERAGE: Final = 0.9
_MOST_SKEW: Final = timedelta(minutes=5)


def data_checks(inputs: Inputs, now: datetime) -> Iterator[Check]:
    """Look at names, levels, coverage, clocks, metrics and quarantined rows.

    Args:
        inputs: The tables; a check whose table is missing is left out.
        now: To compare clocks with.
    """
    if inputs.has(OBSERVATION_MINUTE):
        yield from _names(inputs)
        yield from _metrics(inputs)
    if inputs.has(BUCKET_MINUTE):
        yield _unlimited(inputs)
        yield _throttling(inputs)
    minutes = next((item for item in (OBSERVATION_MINUTE, BUCKET_MINUTE) if inputs.has(item)), None)
    if minutes is not None:
        yield from _brokers(inputs, minutes, now)
    if inputs.has(QUARANTINE):
        yield _quarantined(inputs)


def _names(inputs: Inputs) -> Iterator[Check]:
    day = inputs.last_day(OBSERVATION_MINUTE)
    last = pc.field("dt") == date.fromisoformat(day) if day else None
    rows = inputs.read(OBSERVATION_MINUTE, ["user", "client_id"], last)
    rows = rows.append_column("n", pa.repeat(1, rows.num_rows))
    names = rows.group_by(["user", "client_id"]).aggregate([("n", "sum")])
    yield _encoded(names)
    yield _empty(names)


def _encoded(names: pa.Table) -> Check:
    found = sorted(
        {
            name
            for column in ("user", "client_id")
            for name in names[column]
            .filter(pc.match_substring_regex(names[column], _ENCODED))
            .to_pylist()
        }
    )
    if not found:
        return ok("names decoded", "no name holds %XX.")
    told = (
        f"{len(found)} names hold %XX, such as {found[0]!r}: they match no quota if the source "
        "encodes names. Ingest with `urlencoded: true` in the --map."
    )
    return warn("names decoded", told)


def _empty(names: pa.Table) -> Check:
    no_user, no_client = pc.equal(names["user"], ""), pc.equal(names["client_id"], "")
    nobody = _share(names, pc.and_(no_user, no_client))
    told = (
        f"of the rows of the last day {_share(names, no_user):.1%} have no user, "
        f"{_share(names, no_client):.1%} no client-id, and {nobody:.1%} neither"
    )
    if nobody > _MOST_EMPTY:
        return warn("names present", f"{told}: see that the exporter keeps these two labels.")
    return ok("names present", f"{told}.")


def _share(names: pa.Table, chosen: pa.ChunkedArray) -> float:
    rows = pc.sum(names["n_sum"]).as_py() or 0
    share: float = (pc.sum(names["n_sum"].filter(chosen)).as_py() or 0) / max(rows, 1)
    return share


def _metrics(inputs: Inputs) -> Iterator[Check]:
    """Look for keys with quotas and no metric: brokers record a type once it has a quota."""
    seen = set(pc.unique(inputs.read(OBSERVATION_MINUTE, ["key"])["key"]).to_pylist())
    now = pc.field("valid_to").is_null()
    limited = set(pc.unique(inputs.read(QUOTA_VERSION, ["key"], now)["key"]).to_pylist())
    for key, resource in _RESOURCES.items():
        check = f"metric {resource}"
        if key in seen:
            yield ok(check, f"{key} is observed.")
        elif key in limited:
            told = (
                f"{key} has quotas and no observation: add an exporter rule for "
                f"kafka.server:type={resource}, or scrape the node that enforces it."
            )
            yield warn(check, told)
        else:
            yield ok(check, f"{key} is not observed; brokers record it once a quota sets it.")


def _unlimited(inputs: Inputs) -> Check:
    rows = inputs.count(BUCKET_MINUTE)
    share = inputs.count(BUCKET_MINUTE, pc.field("level") == 0) / max(rows, 1)
    told = f"no quota limits {share:.1%} of the bucket minutes"
    if share > _MOST_UNLIMITED:
        return warn("level 0", f"{told}: see that --quotas is of this cluster and names agree.")
    return ok("level 0", f"{told}.")


def _throttling(inputs: Inputs) -> Check:
    over = pc.field("rate_max") > pc.field("limit")
    told = inputs.count(BUCKET_MINUTE, pc.field("throttle_ms_avg").is_valid())
    if not told and inputs.count(BUCKET_MINUTE, over):
        line = (
            "rates are above limits, and no throttle time was ever recorded: add an exporter rule "
            "for the attribute throttle-time."
        )
        return warn("throttle times", line)
    return ok("throttle times", f"{told:,} bucket minutes have one.")


def _brokers(inputs: Inputs, table: Table, now: datetime) -> Iterator[Check]:
    said = inputs.read(table, ["cluster_id", "broker_id", "ts"])
    minutes = said.group_by(["cluster_id", "broker_id", "ts"]).aggregate([])
    brokers = minutes.group_by(["cluster_id", "broker_id"]).aggregate(
        [("ts", "count"), ("ts", "min"), ("ts", "max")]
    )
    rows = sorted(brokers.to_pylist(), key=lambda item: (item["cluster_id"], item["broker_id"]))
    for cluster in sorted({row["cluster_id"] for row in rows}):
        mine = [row for row in rows if row["cluster_id"] == cluster]
        begin = min(item["ts_min"] for item in mine)
        end = max(item["ts_max"] for item in mine)
        span = (end - begin) // timedelta(minutes=1) + 1
        for item in mine:
            yield _covered(item, span)
        yield _skew(cluster, mine, end, now)


def _covered(broker: dict[str, Any], span: int) -> Check:
    name = f"coverage of broker {broker['broker_id']} of {broker['cluster_id']}"
    share = broker["ts_count"] / span
    told = f"{broker['ts_count']:,} of {span:,} minutes ({share:.1%})"
    if share < _LEAST_COVERAGE:
        return warn(name, f"{told}: its scrapes fail at times; look at `up` and its timeouts.")
    return ok(name, f"{told}.")


def _skew(cluster: str, brokers: list[dict[str, Any]], end: datetime, now: datetime) -> Check:
    name = f"clocks of {cluster}"
    if end > now.astimezone(UTC) + _MOST_SKEW:
        told = (
            f"the last minute, {end:%Y-%m-%d %H:%M} UTC, is in the future: set the clocks by NTP."
        )
        return fail(name, told)
    late = [broker["broker_id"] for broker in brokers if end - broker["ts_max"] > _MOST_SKEW]
    if late:
        told = (
            f"the last minute of broker {', '.join(map(str, late))} is more than 5 minutes before "
            "that of the others: it was not scraped, or a clock is wrong."
        )
        return warn(name, told)
    return ok(name, f"all brokers end within 5 minutes of {end:%Y-%m-%d %H:%M} UTC.")


def _quarantined(inputs: Inputs) -> Check:
    rows = inputs.read(QUARANTINE, ["reason", "n"])
    reasons = rows.group_by("reason").aggregate([("n", "sum")]).to_pylist()
    reasons.sort(key=lambda item: (-item["n_sum"], item["reason"]))
    most = ", ".join(f"{reason['reason']} ({reason['n_sum']:,})" for reason in reasons[:3])
    return warn("quarantine", f"rows were left out by ingest: {most}. The table has their text.")
