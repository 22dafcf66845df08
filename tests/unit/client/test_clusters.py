"""Several clusters behind one service: which one is asked, what two have different."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.client.conftest import PLAN, Ran, Reply, Run

P, C = "producer_byte_rate", "consumer_byte_rate"

ALLOWED: Final = {"describe": True, "alter": True, "audit": False, "scram": False}
CLUSTERS: Final[dict[str, Any]] = {
    "default": "prod",
    "clusters": [
        {
            "name": "prod",
            "cluster_id": "aaaa",
            "ready": True,
            "reason": None,
            "permissions": ALLOWED,
        },
        {
            "name": "staging",
            "cluster_id": None,
            "ready": False,
            "reason": "No broker\x1b answers.",
            "permissions": None,
        },
    ],
}
ME: Final = {
    "principal": "User:alice",
    "cluster_id": "aaaa",
    "authentication": "bearer",
    "client_address": "192.0.2.1",
    "permissions": ALLOWED,
    "policy": None,
}
RESULT: Final = {
    "entity": {"user": "alice"},
    "outcome": "applied",
    "changed": True,
    "before": {P: 1},
    "after": {P: 2},
    "error": None,
}
APPLIED: Final = {
    "alteration_id": "a1",
    "outcome": "applied",
    "validate_only": False,
    "readable": True,
    "results": [RESULT],
}


def paths(ran: Ran) -> list[str]:
    return [path.partition("?")[0] for _, path, _, _ in ran.service.asked]


def quota(names: dict[str, str | None], **more: Any) -> dict[str, Any]:
    return {"entity": names, "entity_key": "k", **more}


def listed(*quotas: dict[str, Any]) -> Reply:
    return Reply(200, {"quotas": list(quotas)})


@pytest.mark.parametrize("words", ["--cluster prod describe", "describe --cluster prod"])
def test_the_cluster_stands_before_or_behind_the_word(run: Run, words: str):
    assert paths(run(words, listed())) == ["/clusters/prod/quotas"]


def test_the_nearest_of_option_environment_and_profile_names_the_cluster(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "kafka-client-quotas"
    folder.mkdir()
    (folder / "config.toml").write_text('profile = "a"\n[profiles.a]\ncluster = "profiled"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert paths(run("describe", listed())) == ["/clusters/profiled/quotas"]
    monkeypatch.setenv("QUOTAS_CLUSTER", "environed")
    assert paths(run("describe", listed())) == ["/clusters/environed/quotas"]
    assert paths(run("describe --cluster typed", listed())) == ["/clusters/typed/quotas"]


@pytest.mark.parametrize("name", ["..", "a/b", "%2f", "Prod", "a" * 64, "a?b", "a#b"])
def test_what_is_no_name_of_a_cluster_is_not_asked_for(run: Run, name: str):
    ran = run(["describe", "--cluster", name], listed())
    assert (ran.code, ran.service.asked) == (2, [])
    assert "--cluster is no name of a cluster" in ran.err


def test_every_command_asks_its_cluster_and_says_it_in_what_is_to_be_pasted(
    run: Run, tmp_path: Path
):
    file = tmp_path / "quotas.csv"
    file.write_text(f"user,{P}\nalice,5\n")
    apply = run(
        ["apply", str(file), "--yes", "--cluster", "b"], Reply(200, PLAN), Reply(200, APPLIED)
    )
    assert paths(apply) == ["/clusters/b/quotas/plans", "/clusters/b/quotas/plans/p1/apply"]
    alter = run(f"alter --names user=alice --add {P}=2 --yes --cluster b", Reply(200, APPLIED))
    assert paths(alter) == ["/clusters/b/quotas/alterations"]
    assert "To undo it: kafka-client-quotas revert a1 --cluster b" in alter.err
    odd = quota({"user": "alice"}, values={P: "NaN"})
    budgets, users = Reply(200, {"rows": []}), Reply(200, {"users": []})
    resolved = Reply(200, {"callback": {"class": None, "model": "kafka"}})
    lint = run("lint --cluster b", listed(odd), users, budgets, resolved)
    assert {path.split("/")[2] for path in paths(lint)} == {"b"}
    assert f"--delete {P} --cluster b" in lint.out


def test_an_unknown_cluster_says_where_names_are(run: Run):
    problem = {"code": "no-such-cluster", "title": "No such cluster", "status": 404}
    ran = run("describe --cluster c", Reply(404, problem))
    assert (ran.code, "Take one of those that `clusters` lists." in ran.err) == (1, True)


def test_clusters_are_listed_with_their_state(run: Run):
    ran = run("clusters --cluster staging", Reply(200, CLUSTERS))
    assert (ran.code, paths(ran)) == (0, ["/clusters"])
    assert [line.split() for line in ran.out.splitlines()[1:]] == [
        ["*prod", "aaaa", "yes", "describe,", "alter"],
        ["staging", "?", "no", "?", "No", "broker\\x1b", "answers."],
    ]
    assert json.loads(run("clusters --output json", Reply(200, CLUSTERS)).out) == CLUSTERS


def test_whoami_tells_of_every_cluster(run: Run):
    ran = run("whoami --all", Reply(200, CLUSTERS), Reply(200, ME))
    assert (ran.code, paths(ran)) == (0, ["/clusters", "/clusters/prod/me"])
    assert ran.out.splitlines() == [
        "prod:",
        "  User:alice",
        "    cluster_id: aaaa",
        "    authentication: bearer",
        "    client_address: 192.0.2.1",
        "    may: describe, alter",
        "    may not: audit, scram",
        "staging:",
        "  unknown: No broker\\x1b answers.",
    ]
    away = Reply(503, {"detail": "It has gone."})
    ran = run("whoami --all --output json", Reply(200, CLUSTERS), away)
    first, _ = json.loads(ran.out)["clusters"]
    assert first == {"name": "prod", "reason": "It has gone.", "me": None}


def test_two_clusters_are_compared_value_by_value(run: Run):
    end = {"temporary": {P: {"expires_at": "2026-11-28T00:00:00.000Z", "returns_to": 4}}}
    first = listed(
        quota({"user": None}, values={P: 100, C: 7}),
        quota({"user": "same"}, values={P: 4}),
        quota({"user": "odd"}, values={P: "NaN"}),
    )
    second = listed(
        quota({"user": None}, values={P: 50}),
        quota({"user": "same"}, values={P: 9}, **end),
        quota({"user": "new"}, values={C: 2**63 - 1}),
    )
    ran = run("diff --cluster a b --prefix user=", first, second)
    assert ran.code == 1
    assert paths(ran) == ["/clusters/a/quotas", "/clusters/b/quotas"]
    assert [line.split() for line in ran.out.splitlines()] == [
        ["entity", "key", "a", "b"],
        ["{user=<default>}", C, "7", "unset"],
        ["{user=<default>}", P, "100", "50", "÷", "2"],
        ["{user=new}", C, "unset", "9223372036854775807"],
        ["{user=odd}", P, "NaN", "unset"],
    ]
    answer = json.loads(run("diff --cluster a b --output json", first, second).out)
    assert answer["clusters"] == ["a", "b"]
    assert answer["differences"][0] == {
        "entity": {"user": None},
        "entity_key": "eyJ1c2VyIjpudWxsfQ",
        "key": C,
        "values": [7, None],
    }


def test_clusters_that_are_alike_are_exit_code_0(run: Run):
    same = listed(quota({"user": "a"}, values={P: 1}))
    ran = run("diff --cluster a b", same, same)
    assert (ran.code, ran.out, ran.err) == (0, "", "No differences.\n")


@pytest.mark.parametrize(
    "words", ["diff", "diff --cluster a", "diff --cluster a a", "--cluster a diff"]
)
def test_a_diff_needs_two_clusters(run: Run, words: str):
    assert run(words).code == 2
