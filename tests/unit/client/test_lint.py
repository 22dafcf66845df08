"""Findings are true: judged by the resolution of the domain, in small worlds."""

import json
import shlex
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client.arguments import parser
from app.client.commands.lint import (
    Finding,
    alter_line,
    catching_brokers,
    hidden,
    literal_names,
    not_numbers,
    odd_addresses,
    without_credentials,
)
from app.client.entities import entity_of, read_names, read_types
from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey
from app.domain.resolution import resolve_client
from app.domain.resolution_index import QuotaIndex
from tests.unit.client.conftest import Reply, Run

P = QuotaKey.PRODUCER_BYTE_RATE
USERS, CLIENTS = ("u1", "u2"), ("c1", "c2")
ENTITIES = [
    ClientQuotaEntity.of({kind: name for kind, name in pair if name != "-"})
    for pair in product(
        [("user", name) for name in ("-", None, *USERS)],
        [("client-id", name) for name in ("-", None, *CLIENTS)],
    )
    if pair != (("user", "-"), ("client-id", "-"))
]
WORLDS = st.dictionaries(st.sampled_from(ENTITIES), st.sampled_from([1, 2]), max_size=8)
IDENTITIES = list(product((*USERS, "other"), (*CLIENTS, "other", "")))


def quotas(world: dict[ClientQuotaEntity, int]) -> list[dict[str, object]]:
    return [{"entity": entity.as_dict(), "values": {P: value}} for entity, value in world.items()]


def outcomes(world: dict[ClientQuotaEntity, int]) -> list[tuple[object, object, object]]:
    index = QuotaIndex.of({entity: {P: float(value)} for entity, value in world.items()})
    found = [resolve_client(index, *identity).quotas[P] for identity in IDENTITIES]
    return [(result.value, result.shared_by, result.source) for result in found]


def applying(world: dict[ClientQuotaEntity, int], entity: ClientQuotaEntity) -> list[str]:
    """Return the client-ids to which a rule applies."""
    resolved = zip(IDENTITIES, outcomes(world), strict=True)
    return [who[1] for who, (_, _, source) in resolved if source and source.entity == entity]


@given(WORLDS)
def test_reported_levels_are_true(world: dict[ClientQuotaEntity, int]):
    findings = list(hidden(quotas(world)))
    by_rule: dict[str, set[ClientQuotaEntity]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, set()).add(ClientQuotaEntity.of(finding.entity))
    never = {entity for entity in world if not applying(world, entity)}
    assert by_rule.get("shadowed", set()) == never
    without_client_id = {entity for entity in world if set(applying(world, entity)) == {""}}
    assert by_rule.get("shadowed-for-clients", set()) == without_client_id
    for entity in by_rule.get("redundant", set()):
        without = {other: value for other, value in world.items() if other != entity}
        assert [resolved[:2] for resolved in outcomes(without)] == [
            resolved[:2] for resolved in outcomes(world)
        ]


def test_a_rule_that_repeats_the_next_one_is_found():
    world = {
        ClientQuotaEntity.of({"user": "u1"}): 5,
        ClientQuotaEntity.of({"user": None}): 5,
        ClientQuotaEntity.of({"client-id": "c1"}): 7,
    }
    found = [(finding.rule, finding.entity, finding.fixes) for finding in hidden(quotas(world))]
    assert found == [
        (
            "redundant",
            {"user": "u1"},
            ("kafka-client-quotas --alter --names user=u1 --delete producer_byte_rate",),
        ),
        (
            "shadowed",
            {"client-id": "c1"},
            ("kafka-client-quotas --alter --names client-id=c1 --delete producer_byte_rate",),
        ),
    ]


@given(
    st.dictionaries(
        st.sampled_from(["user", "client-id"]),
        st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        min_size=1,
    )
)
def test_every_fix_names_its_entity_when_the_shell_has_read_it(entity: dict[str, str | None]):
    line = alter_line(entity, {P: 5}, ["consumer_byte_rate"])
    assert line.isprintable()
    options = parser(()).parse_args(shlex.split(line)[1:])
    names = [pair for text in options.names or [] for pair in read_names(text, "--names")]
    defaults = [kind for text in options.defaults or [] for kind in read_types(text, "--defaults")]
    assert entity_of(names, defaults) == entity
    assert (options.add, options.delete) == ([f"{P}=5"], ["consumer_byte_rate"])


def only(findings: object) -> Finding:
    (finding,) = findings  # type: ignore[misc]
    return finding


ALTER = "kafka-client-quotas --alter"


@pytest.mark.parametrize(
    ("names", "rule", "move"),
    [
        (
            {"user": "User:a b", "client-id": None},
            "user-prefix",
            f"--names 'user=a b' --defaults client-id --add {P}=5",
        ),
        ({"user": "<default>"}, "literal-default", f"--defaults user --add {P}=5"),
        (
            {"user": "bob", "client-id": "*"},
            "literal-default",
            f"--names user=bob --defaults client-id --add {P}=5",
        ),
        ({"client-id": "tenant-*"}, "literal-pattern", None),
    ],
)
def test_a_name_that_kafka_takes_literally_is_found_with_the_line_that_moves_its_value(
    names: dict[str, str | None], rule: str, move: str | None
):
    finding = only(literal_names([{"entity": names, "values": {P: 5}}]))
    moves = [] if move is None else [f"{ALTER} {move}"]
    assert (finding.rule, finding.entity) == (rule, names)
    assert finding.fixes == (*moves, alter_line(names, delete=[P]))


def test_what_the_intended_entity_has_of_its_own_stays():
    world: list[Any] = [
        {"entity": {"user": "*"}, "values": {P: 5, "request_percentage": 50}},
        {"entity": {"user": None}, "values": {P: 7}},
    ]
    finding = only(literal_names(world))
    assert finding.message.endswith("{user=<default>} has values of its own, which stay.")
    assert finding.fixes == (
        f"{ALTER} --defaults user --add request_percentage=50",
        f"{ALTER} --names 'user=*' --delete {P},request_percentage",
    )
    world[0]["values"] = {P: 5}
    assert only(literal_names(world)).fixes == (f"{ALTER} --names 'user=*' --delete {P}",)


def test_users_without_credentials_are_found_where_others_have_some():
    world = [
        {"entity": {"user": name}, "values": {P: 5}}
        for name in ("alice", "bob", "CN=carol", "ANONYMOUS", None, "User:x")
    ]
    finding = only(without_credentials(world, frozenset({"alice"})))
    assert finding.entity == {"user": "bob"}
    assert finding.message == "bob has no SCRAM credentials; the user may not exist"
    assert list(without_credentials(world, frozenset())) == []


def test_addresses_that_are_none_or_are_spelled_oddly_are_found():
    key = QuotaKey.CONNECTION_CREATION_RATE
    names = ("10.0.0.1", None, "broker.example", "2001:DB8::1")
    world = [{"entity": {"ip": name}, "values": {key: 5}} for name in names]
    found = list(odd_addresses(world))
    assert [finding.entity["ip"] for finding in found] == ["broker.example", "2001:DB8::1"]
    assert found[1].fixes[1].endswith(f"--names ip=2001:db8::1 --add {key}=5")


def test_values_that_are_no_numbers_are_found():
    world = [{"entity": {"user": "a"}, "values": {P: "NaN", "request_percentage": 5}}]
    assert only(not_numbers(world)).key == P


def test_defaults_that_catch_the_brokers_are_found():
    world = [
        {"entity": {"user": None}, "values": {P: 5, "request_percentage": 50}},
        {"entity": {"user": "kafka"}, "values": {P: 10}},
        {"entity": {"user": None, "client-id": "etl"}, "values": {P: 5}},
    ]
    finding = only(catching_brokers(world, ["kafka"]))
    assert (finding.entity, finding.key) == ({"user": None}, "request_percentage")
    assert finding.fixes[0].endswith("--add request_percentage=1000000000")


NO_BUDGETS = Reply(200, {"rows": []})
NO_CALLBACK = Reply(200, {"callback": {"class": None, "model": "kafka"}})


def test_what_the_brokers_callback_ignores_is_found(run: Run):
    quotas = [
        {"entity": {"user": "alice"}, "values": {P: 5}},
        {"entity": {"ip": "10.0.0.1"}, "values": {"connection_creation_rate": 5}},
    ]
    ignored = {"entity": {"user": "alice"}, "code": "ignored-by-callback", "detail": "Nobody."}
    odd = {"entity": {"user": "alice"}, "code": "user-prefix", "detail": "Somebody."}
    ran = run(
        "lint --output json",
        Reply(200, {"quotas": quotas}),
        Reply(200, {"users": []}),
        NO_BUDGETS,
        Reply(200, {"callback": {"class": "com.example.Q", "model": "strimzi-static"}}),
        Reply(200, {"results": [], "warnings": [ignored, odd]}),
    )
    (finding,) = json.loads(ran.out)["findings"]
    assert (finding["rule"], finding["severity"]) == ("ignored-by-callback", "warning")
    assert (finding["entity"], finding["message"]) == ({"user": "alice"}, "Nobody.")


def test_of_many_findings_of_a_rule_a_few_are_printed(run: Run):
    quotas = [{"entity": {"user": f"User:u{n:02}"}, "values": {P: 5}} for n in range(30)]
    quotas_of_all, nobody = Reply(200, {"quotas": quotas}), Reply(200, {"users": []})
    replies = (quotas_of_all, nobody, NO_BUDGETS, NO_CALLBACK)
    ran = run("lint", *replies)
    assert ran.out.count("[user-prefix]") == 4
    assert "and 27 more [user-prefix]: --all lists them\n30 warnings, 0 hints.\n" in ran.out
    assert run("lint --all", *replies).out.count("[user-prefix]") == 30
    findings = json.loads(run("lint --output json", *replies).out)
    assert len(findings["findings"]) == 30


def test_a_rule_that_could_not_run_is_named(run: Run):
    refused = Reply(403, {"title": "No", "code": "cluster-authorization-failed"})
    ran = run("lint --output json --broker-user b", Reply(200, {"quotas": []}), refused, NO_BUDGETS)
    assert json.loads(ran.out)["not_judged"] == ["no-credentials"]
    assert "who has credentials is unknown" in ran.err


@pytest.mark.parametrize(
    ("users", "options", "not_judged"),
    [
        ([{"user": "a"}], "--broker-user kafka", []),
        ([], "--broker-user kafka", ["no-credentials"]),
        ([{"user": "a"}], "", ["catches-brokers"]),
        ([], "", ["no-credentials", "catches-brokers"]),
    ],
)
def test_a_rule_without_what_it_needs_has_not_judged(
    run: Run, users: list[dict[str, str]], options: str, not_judged: list[str]
):
    replies = (Reply(200, {"quotas": []}), Reply(200, {"users": users}), NO_BUDGETS)
    ran = run(f"lint {options} --output json", *replies)
    assert (json.loads(ran.out)["not_judged"], ran.err) == (not_judged, "")
    sentences = run(f"lint {options}", *replies).err.splitlines()
    assert [sentence.split(";")[0] for sentence in sentences] == [
        f"Not judged: {rule}" for rule in not_judged
    ]


ROW: dict[str, Any] = {
    "name": "team-a",
    "key": P.value,
    "limit": 1000,
    "overbooking": 1.2,
    "sum": 600,
    "entities": 3,
    "unlimited": 1,
    "users": "a-",
    "largest": [{"entity": {"user": "a-1"}, "value": 500}],
    "without_value": [{"user": "a-3"}],
}


def test_lint_says_how_full_each_budget_is_and_who_has_no_value(run: Run):
    quotas, users = Reply(200, {"quotas": []}), Reply(200, {"users": [{"user": "a"}]})
    ran = run("lint --broker-user b", quotas, users, Reply(200, {"rows": [ROW]}))
    first, hint, last = ran.out.splitlines()
    assert first == (
        "budget team-a: producer_byte_rate 600 B/s of 1.17 KiB/s (50%), 3 entities, "
        "1 without a value"
    )
    assert hint == (
        "hint: {user=a-3} producer_byte_rate is not set, so budget team-a counts it as nothing "
        "[budget-without-value]"
    )
    assert (ran.code, last) == (1, "0 warnings, 1 hint.")
    over = Reply(200, {"rows": [{**ROW, "sum": 1800, "without_value": []}]})
    ran = run("lint --broker-user b --output json", quotas, users, over)
    report = json.loads(ran.out)
    (finding,) = report["findings"]
    assert (finding["rule"], finding["severity"]) == ("budget-exceeded", "warning")
    assert finding["entity"] == {"user": "a-1"}
    assert report["budgets"] == over.body["rows"]


def test_lint_of_a_service_that_has_no_budgets_says_what_it_has_not_judged(run: Run):
    gone = Reply(404, {"title": "No", "code": "no-such-entity"})
    replies = (Reply(200, {"quotas": []}), Reply(200, {"users": [{"user": "a"}]}), gone)
    ran = run("lint --broker-user b --output json", *replies)
    not_judged = json.loads(ran.out)["not_judged"]
    assert (ran.code, not_judged) == (0, ["budget-exceeded", "budget-without-value"])
    assert "how full the budgets are is unknown" in ran.err


def test_budgets_are_listed_in_every_format(run: Run):
    answer = Reply(200, {"rows": [ROW]})
    ran = run("budgets", answer)
    assert ran.code == 0
    assert ran.service.asked[0][1] == "/quotas/budgets?explain=true"
    assert [line.split() for line in ran.out.splitlines()] == [
        ["budget", "key", "sum", "at", "most", "full", "entities", "without", "a", "value"],
        ["team-a", "producer_byte_rate", "600", "B/s", "1.17", "KiB/s", "50%", "3", "1"],
    ]
    assert run("budgets --output csv", answer).out.splitlines() == [
        "name,key,limit,overbooking,sum,entities,unlimited",
        "team-a,producer_byte_rate,1000,1.2,600,3,1",
    ]
    assert json.loads(run("budgets --output json", answer).out) == {"rows": [ROW]}
    assert "no budgets" in run("budgets", NO_BUDGETS).err
