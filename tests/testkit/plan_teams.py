"""Two owners plan, apply and prune at the same time; a model says what must hold afterwards."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService

KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
SHARED: Final = ("s1", "s2", "s3")
OWN: Final = {"a": ("a1", "a2", "a3"), "b": ("b1", "b2", "b3")}
OUTSIDE: Final = "outside"

_FORCED: Final = 0.1
_FORGOTTEN: Final = 0.4
_REFUSALS: Final = {409: {"owner-conflict", "entity-busy"}, 412: {"plan-outdated"}}

EntityKey = tuple[str, str]
"""The end of a user's name, and a key."""


@dataclass
class Model:
    """What holds and whose it is."""

    values: dict[EntityKey, float] = field(default_factory=dict)
    owners: dict[EntityKey, str] = field(default_factory=dict)

    def take(self, owner: str, planned: Any) -> None:
        """Do what an applied plan did, and look whether it might."""
        for entity_key, op in ops_of(planned):
            assert entity_key[0] != OUTSIDE
            assert self.values.get(entity_key) == planned_before(planned, entity_key)
            if op.get("remove"):
                assert self.owners[entity_key] == owner, f"{entity_key} was not {owner}'s to remove"
                del self.values[entity_key], self.owners[entity_key]
            else:
                self.values[entity_key], self.owners[entity_key] = op["value"], owner


@dataclass
class Team:
    """One owner at work; ``wanted`` is its file, and ``applied`` its plans by alteration."""

    name: str
    prefix: str
    api: httpx.Client
    wanted: dict[EntityKey, float] = field(default_factory=dict)
    applied: dict[str, Any] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)

    @property
    def owner(self) -> str:
        return f"{self.prefix}-{self.name}"

    def work(self, seed: int, steps: int) -> None:
        """Edit the file, plan, and apply, so many times."""
        dice = random.Random(seed)
        for _ in range(steps):
            for _ in range(dice.randint(1, 3)):
                self._edit(dice)
            self._settle(force=dice.random() < _FORCED)

    def _edit(self, dice: random.Random) -> None:
        entity_key = (dice.choice((*OWN[self.name], *SHARED)), dice.choice(KEYS))
        if dice.random() < _FORGOTTEN:
            self.wanted.pop(entity_key, None)
        else:
            self.wanted[entity_key] = float(dice.randint(1, 1000))

    def plan(self) -> Any:
        by_user: dict[str, dict[str, float]] = {}
        for (user, key), value in self.wanted.items():
            by_user.setdefault(f"{self.prefix}-{user}", {})[key] = value
        quotas = [{"entity": {"user": user}, "values": by_user[user]} for user in by_user]
        body = {
            "document": {"apiVersion": "quotas/v1", "quotas": quotas},
            "owner": self.owner,
            "prune": True,
            "scope": [f"user^={self.prefix}-{beginning}" for beginning in (self.name, "s")],
        }
        answer = self.api.post("/quotas/plans", json=body)
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()

    def _settle(self, *, force: bool) -> None:
        planned = self.plan()
        path = f"/quotas/plans/{planned['plan_id']}/apply"
        answer = self.api.post(path, json={"force": force})
        self.statuses.append(answer.status_code)
        if answer.status_code == httpx.codes.OK:
            assert force or not planned["conflicts"]
            self.applied[answer.json()["alteration_id"]] = planned
            return
        assert answer.json()["code"] in _REFUSALS[answer.status_code], answer.text
        for conflict in planned["conflicts"]:
            self.wanted.pop((ending(conflict), conflict["key"]))


def ending(entry: Any) -> str:
    return str(entry["entity"]["user"].rpartition("-")[2])


def ops_of(planned: Any) -> list[tuple[EntityKey, Any]]:
    return [
        ((ending(change), op["key"]), op) for change in planned["changes"] for op in change["ops"]
    ]


def planned_before(planned: Any, entity_key: EntityKey) -> float | None:
    user, key = entity_key
    (change,) = (item for item in planned["changes"] if ending(item) == user)
    value: float | None = change["before"].get(key)
    return value


def let_two_teams_work(service: RunningService, raw: RawQuotas, steps: int) -> list[list[int]]:
    """Let two owners take so many steps each; return the statuses of their answers."""
    prefix = unique("teams")
    outside = {"user": f"{prefix}-{OUTSIDE}"}
    raw.store(outside, {KEYS[0]: 5.0})
    teams = [Team(name, prefix, service.api("root")) for name in OWN]
    with ThreadPoolExecutor(len(teams)) as pool:
        working = [pool.submit(team.work, seed, steps) for seed, team in enumerate(teams)]
    for work in working:
        work.result()
    model = replayed(teams)
    stored = {
        (user, key): value
        for user in (*OWN["a"], *OWN["b"], *SHARED)
        for key, value in raw.stored({"user": f"{prefix}-{user}"}).items()
    }
    assert stored == model.values, set(stored.items()) ^ set(model.values.items())
    assert raw.stored(outside) == {KEYS[0]: 5.0}
    for team in teams:
        team.wanted = {}
        removed = {entity_key for entity_key, op in ops_of(team.plan()) if op["remove"]}
        assert removed == {
            entity_key for entity_key, owner in model.owners.items() if owner == team.owner
        }
    return [team.statuses for team in teams]


def replayed(teams: list[Team]) -> Model:
    """Return what must hold, by the order in which the log has what was applied."""
    found = []
    for team in teams:
        for alteration_id, planned in team.applied.items():
            path = f"/quotas/alterations/{alteration_id}"
            at = team.api.get(path).json()["history"][0]["at"]
            found.append((at, alteration_id, team.owner, planned))
    model = Model()
    for _, _, owner, planned in sorted(found, key=lambda item: item[:2]):
        model.take(owner, planned)
    return model
