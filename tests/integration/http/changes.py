"""Alterations as JSON."""

from collections.abc import Mapping
from typing import Any

import httpx

from tests.testkit.raw_quotas import Names
from tests.testkit.service import RunningService

P, C = "producer_byte_rate", "consumer_byte_rate"
R, M, I = "request_percentage", "controller_mutation_rate", "connection_creation_rate"  # noqa: E741


def change(names: Names, values: Mapping[str, Any]) -> dict[str, Any]:
    """Set each key to its value; null removes it."""
    ops = [
        {"key": key, "remove": True} if value is None else {"key": key, "value": value}
        for key, value in values.items()
    ]
    return {"entity": names, "ops": ops}


def applied(service: RunningService, names: Names, values: Mapping[str, Any]) -> dict[str, Any]:
    """Alter one entity and return its result."""
    answer = service.alter(change(names, values))
    assert answer.status_code == httpx.codes.OK, answer.text
    document = answer.json()
    assert (document["outcome"], document["readable"]) == ("applied", True)
    result: dict[str, Any]
    (result,) = document["results"]
    return result


def outcomes(document: Mapping[str, Any]) -> list[str]:
    """Return the word for each entity."""
    return [result["outcome"] for result in document["results"]]
