"""The numbered resolve cases over HTTP, and a broker's own two steps over what it describes."""

from typing import NamedTuple

import pytest

from tests.integration.http.changes import C, I, M, P, R
from tests.integration.http.worlds import (
    F2,
    LEVELS,
    World,
    client,
    enforced,
    pair,
    resolved,
    shown,
    user,
    without,
    world,
)
from tests.support.kafka import unique
from tests.support.raw_quotas import RawQuotas
from tests.support.service import RunningService

UNITS = {P: "bytes/s", C: "bytes/s", R: "percent", M: "partitions/s"}


F2_NO_PAIR = without(F2, pair(None, None))
F2_NO_USER = without(F2_NO_PAIR, user(None))
F3 = world(
    (pair(None, "c1"), P, 100), (user(None), P, 200), (client("c1"), P, 300), (user("alice"), P, 50)
)
F3_NO_USER = without(F3, user(None))
F4 = world((user("alice"), P, 10), (client("c1"), C, 20), (user(None), R, 5))
LARGEST = 2**63 - 1


class Case(NamedTuple):
    """Rules, a caller, and what applies: value and level; null is unlimited."""

    rules: World
    caller: tuple[str, str]
    value: float | None
    level: int | None
    tags: tuple[str, str] | None = None
    key: str = P


CASES = {
    "C109": Case(F2, ("userA", "client1"), 5000, 1, ("userA", "client1")),
    "C110": Case(F2, ("userA", "client2"), 4000, 3, ("userA", "")),
    "C112": Case(F2, ("userB", "client1"), 7000, 1),
    "C113": Case(F2, ("userB", "client2"), 8000, 2, ("userB", "client2")),
    "C115": Case(F2, ("userC", "client1"), 10000, 3),
    "C116": Case(F2, ("userD", "client1"), 3000, 5, ("userD", "client1")),
    "C127": Case(F2, ("userD", ""), 1000, 6, ("userD", "")),
    "C124": Case(without(F2, pair("userA", "client1")), ("userA", "client1"), 4000, 3),
    "C125": Case({**F2, **world((pair("userA", None), P, 12000))}, ("userA", "client6"), 12000, 2),
    "C118": Case(F2_NO_PAIR, ("userD", "client1"), 1000, 6, ("userD", "")),
    "C119 client4": Case(F2_NO_PAIR, ("userF", "client4"), 1000, 6, ("userF", "")),
    "C119 client5": Case(F2_NO_PAIR, ("userF", "client5"), 1000, 6, ("userF", "")),
    "C121": Case(F2_NO_USER, ("userF", "client1"), 9000, 7),
    "C122 userF": Case(F2_NO_USER, ("userF", "client5"), 2000, 8, ("", "client5")),
    "C122 userG": Case(F2_NO_USER, ("userG", "client5"), 2000, 8, ("", "client5")),
    "C128": Case(world((client(None), P, 500)), ("alice", ""), None, None),
    "C130": Case(F3, ("bob", "c1"), 100, 4),
    "C131": Case(F3, ("alice", "c1"), 50, 3),
    "C133 c1": Case(F3_NO_USER, ("bob", "c1"), 100, 4),
    "C133 c2": Case(F3_NO_USER, ("bob", "c2"), None, None),
    "C134": Case(without(F3_NO_USER, pair(None, "c1")), ("bob", "c1"), 300, 7),
    "C136 P": Case(F4, ("bob", "c1"), None, None),
    "C136 C": Case(F4, ("bob", "c1"), 20, 7, key=C),
    "C136 R": Case(F4, ("bob", "c1"), 5, 6, key=R),
    "C137": Case(
        world((user(None), P, 1000), (user("alice"), P, 2.0**63)), ("alice", "x"), LARGEST, 3
    ),
    "C139 set": Case(world((pair("userA", "client1"), P, 10)), ("userA", "client1"), 10, 1),
    "C139 removed": Case({}, ("userA", "client1"), None, None),
    "C140": Case(world((user("<default>"), P, 5)), ("alice", "x"), None, None),
    "C142": Case(world((user("x"), P, 7)), ("x", ""), 7, 3),
    "C143": Case(world((user(None), M, 2)), ("U", "x"), 2, 6, key=M),
    "no user, a rule for the default user": Case(
        world((user(None), P, 1), (client("c"), P, 2)), ("", "c"), None, None
    ),
    "no user, a rule for pairs too": Case(
        world((user(None), P, 1), (client("c"), P, 2), (pair(None, None), P, 3)), ("", "c"), 2, 7
    ),
    "no user and no client-id": Case(F2, ("", ""), None, None),
    "the name that callers without authentication have": Case(
        world((user("ANONYMOUS"), P, 3)), ("ANONYMOUS", "x"), 3, 3
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_numbered_case_resolves_as_on_a_broker(
    service: RunningService, rules: RawQuotas, case: Case
) -> None:
    rules.become(case.rules)
    name, client_id = case.caller
    document = resolved(service, user=name, **{"client-id": client_id})
    quota = document["quotas"][case.key]
    source = quota["source"]
    assert quota["value"] == case.value
    assert (source and source["level"]) == case.level
    assert (source and source["name"]) == (case.level and LEVELS[case.level - 1])
    if case.tags:
        assert quota["shared_by"] == dict(zip(("user", "client-id"), case.tags, strict=True))
    identity = {"user": name, **({"client-id": client_id} if client_id else {})}
    assert document["identity"] == identity
    limits = enforced(rules.everything(), identity)
    assert shown(document) == {
        key: (min(value, LARGEST) if value else None, tags) for key, (value, tags) in limits.items()
    }


@pytest.mark.parametrize("key", UNITS)
def test_each_of_the_eight_levels_wins_when_those_before_it_are_gone(
    service: RunningService, rules: RawQuotas, key: str
) -> None:
    entities = [
        pair("u", "c"), pair("u", None), user("u"), pair(None, "c"), pair(None, None), user(None),
        client("c"), client(None),
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
