"""What brokers can do: ``capacity.json`` of Cruise Control, or CSV."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.pipeline.errors import UsageError
from app.pipeline.options import read_file

DEFAULT_BROKER: Final = -1
"""The id that stands for every broker that is not listed."""

_KB: Final = 1_024
"""Bytes of a KB of Cruise Control."""

_COLUMNS: Final = ("broker_id", "nic_in_bps", "nic_out_bps", "threads", "replication_factor_avg")


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one broker can do; null: nobody says. Network in bytes/s, threads of I/O and network."""

    nic_in: float | None = None
    nic_out: float | None = None
    threads: float | None = None
    replication_factor: float | None = None


def capacity_of(capacities: Mapping[int, Capacity], broker: int) -> Capacity:
    """Return what a broker can do, by itself or as all that are not listed."""
    return capacities.get(broker) or capacities.get(DEFAULT_BROKER) or Capacity()


def read_capacity(file: str) -> dict[int, Capacity]:
    """Read the capacity of brokers by their ids; ``DEFAULT_BROKER`` is that of all others.

    Raises:
        UsageError: A member is missing or wrong; the sentence names it.
    """
    text = read_file("--capacity", file)
    found: dict[int, Capacity] = {}
    for pointer, broker, capacity in (
        _of_json(text) if text.lstrip()[:1] in {"{", "["} else _of_csv(text)
    ):
        if broker in found:
            raise _fault(f"{pointer}: broker {broker} stands there twice")
        found[broker] = capacity
    if not found:
        message = "The file of --capacity has no broker."
        raise UsageError(message)
    return found


def _fault(what: str) -> UsageError:
    return UsageError(f"The file of --capacity is wrong: {what}.")


def _of_json(text: str) -> Iterator[tuple[str, int, Capacity]]:
    """Read ``brokerCapacities``: of NW_IN and NW_OUT in KB/s; disks and processors are left out.

    Source: Cruise Control's ``capacity.json``, ``capacityJBOD.json`` and ``capacityCores.json``.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise _fault(f"it is not JSON ({error})") from error
    items = document.get("brokerCapacities") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise _fault("brokerCapacities must be a list")
    for number, item in enumerate(items):
        pointer = f"brokerCapacities[{number}]"
        if not isinstance(item, dict):
            raise _fault(f"{pointer} must be an object")
        broker, capacity = _whole(f"{pointer}.brokerId", item.get("brokerId")), item.get("capacity")
        if not isinstance(capacity, dict):
            raise _fault(f"{pointer}.capacity must be an object")
        nic_in, nic_out = (
            _number(f"{pointer}.capacity.{name}", capacity.get(name)) * _KB
            for name in ("NW_IN", "NW_OUT")
        )
        yield f"{pointer}.brokerId", broker, Capacity(nic_in, nic_out)


def _of_csv(text: str) -> Iterator[tuple[str, int, Capacity]]:
    rows = csv.DictReader(io.StringIO(text))
    heading = [(name or "").strip() for name in rows.fieldnames or ()]
    rows.fieldnames = heading
    missing = [name for name in _COLUMNS[:3] if name not in heading]
    if missing:
        raise _fault(f"its first line lacks the column {missing[0]}")
    unknown = [name for name in heading if name not in _COLUMNS]
    if unknown:
        raise _fault(f"the column {unknown[0]!r} is none of {', '.join(_COLUMNS)}")
    for number, row in enumerate(rows, 2):
        pointer = f"broker_id of line {number}"
        broker = _whole(pointer, row["broker_id"])
        figures = (
            _number(f"{name} of line {number}", row[name])
            if (row.get(name) or "").strip()
            else None
            for name in _COLUMNS[1:]
        )
        yield pointer, broker, Capacity(*figures)


def _whole(pointer: str, value: Any) -> int:
    try:
        number = int(str(value).strip()) if isinstance(value, str | int) else None
    except ValueError:
        number = None
    if number is None or isinstance(value, bool) or not DEFAULT_BROKER <= number < 2**31:
        raise _fault(f"{pointer} must be a broker's id, or {DEFAULT_BROKER} for all others")
    return number


def _number(pointer: str, value: Any) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) else 0.0
    except ValueError:
        number = 0.0
    if isinstance(value, bool) or not 0 < number < float("inf"):
        raise _fault(f"{pointer} must be a number above 0")
    return number
