"""The numbered resolve cases over HTTP, and a broker's own two steps over what it describes."""

import pytest

from tests.integration.http.service_calls import C, I, M, P, R
from tests.integration.http.worlds import (
    LEVELS,
    client,
    enforced,
    limits_of,
    pair,
    resolved,
    user,
    world,
    world_of,
)
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.resolution_cases import CASES
from tests.testkit.service import RunningService

UNITS = {P: "bytes/s", C: "bytes/s", R: "percent", M: "partitions/s"}


LARGEST = 2**63 - 1


def test_a_numbered_case_resolves_as_on_a_broker(
    service: RunningService, rules: RawQuotas, subtests: pytest.Subtests
) -> None:
    for title, case in CASES.items():
        with subtests.test(title):
            rules.become(world_of(case.store))
            name, client_id = case.caller
            document = resolved(service, user=name, **{"client-id": client_id})
            quota = document["quotas"][case.key]
            source = quota["source"]
            assert quota["value"] == (case.value and min(case.value, LARGEST))
            assert (source and source["level"]) == case.level
            assert (source and source["name"]) == (case.level and LEVELS[case.level - 1])
            if case.bucket:
                assert quota["shared_by"] == dict(
                    zip(("user", "client-id"), case.bucket, strict=True)
                )
            identity = {"user": name, **({"client-id": client_id} if client_id else {})}
            assert document["identity"] == identity
            limits = enforced(rules.everything(), identity)
            assert limits_of(document) == {
                key: (min(value, LARGEST) if value else None, tags)
                for key, (value, tags) in limits.items()
            }


def test_each_of_the_eight_levels_wins_when_those_before_it_are_gone(
    service: RunningService, rules: RawQuotas, subtests: pytest.Subtests
) -> None:
    for key in UNITS:
        with subtests.test(key=key):
            entities = [
                pair("u", "c"), pair("u", None), user("u"), pair(None, "c"), pair(None, None),
                user(None), client("c"), client(None),
            ]  # fmt: skip
            stored = [(names, key, 10.0 * level) for level, names in enumerate(entities, 1)]
            for first in range(9):
                rules.become(world(*stored[first:]))
                quota = resolved(service, user="u", **{"client-id": "c"})["quotas"][key]
                chain = [
                    {"entity": names, "level": level, "name": name, "value": 10 * level}
                    for level, (names, name) in enumerate(zip(entities, LEVELS, strict=True), 1)
                ][first:]
                winner = chain[0] if chain else None
                assert quota["value"] == (winner and winner.pop("value"))
                assert quota["source"] == winner
                assert quota["overridden"] == chain[1:]


def test_all_keys_of_an_identity_are_there_with_unit_and_scope(service: RunningService) -> None:
    quotas = resolved(service, user=unique())["quotas"]
    assert {key: quota["unit"] for key, quota in quotas.items()} == UNITS
    assert {key: quota["scope"] for key, quota in quotas.items()} == {
        P: "per_broker", C: "per_broker", R: "per_broker", M: "cluster"
    }  # fmt: skip
    quotas = resolved(service, ip="10.1.2.3")["quotas"]
    assert list(quotas) == [I]
    assert (quotas[I]["unit"], quotas[I]["scope"]) == ("connections/s", "per_broker")
