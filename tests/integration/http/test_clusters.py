"""Two real clusters, one that is away, and a second name for one of them, behind one service."""

import http.client
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.localdev.processes import free_ports
from tests.integration.http.service_calls import C, P
from tests.testkit.accounts import allow
from tests.testkit.class_archive import shared_classes
from tests.testkit.clusters import running_clusters, write_clusters
from tests.testkit.event_topics import create_topic, read_topic
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.postgres import migrated_database
from tests.testkit.service import RunningService, acl

HERE, THERE, AWAY, TWIN = "here", "there-2", "away", "twin"
TOPIC = "quotas-events"
"""On the second cluster alone."""

BOB = ("bob", "pässword")
OWN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "service",
}
"""The service's own account on the second cluster, where callers log in, too."""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A second cluster, on which bob may alter, and alice nothing."""
    with LocalKafka(
        tmp_path_factory.mktemp("other"),
        super_users="User:ANONYMOUS;User:admin;User:service",
        plain_users={"service": "secret"},
        scram_users=dict([BOB]),
        java_options=shared_classes(),
    ) as kafka:
        allow(kafka, acl("bob", "ALTER_CONFIGS"))
        create_topic(kafka.bootstrap_servers, TOPIC)
        yield kafka


@pytest.fixture(scope="module")
def entries(
    broker: LocalKafka, other: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    (closed,) = free_ports(1)
    password = tmp_path_factory.mktemp("own") / "password"
    password.write_text("secret", encoding="utf-8")
    there = {**OWN, "sasl_password_file": str(password)}
    return {
        HERE: {"bootstrap_servers": broker.bootstrap_servers, "super_users": ["User:root"]},
        THERE: {
            "bootstrap_servers": other.address("SASL_PLAINTEXT"),
            "auditors": ["User:auditor"],
            **there,
        },
        AWAY: {"bootstrap_servers": f"127.0.0.1:{closed}", "super_users": ["User:root"]},
        TWIN: {"bootstrap_servers": other.bootstrap_servers},
    }


@pytest.fixture(scope="module")
def service(
    entries: dict[str, dict[str, Any]],
    postgres: LocalPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningService]:
    _, url = migrated_database(postgres, "clusters")
    folder = tmp_path_factory.mktemp("clusters")
    options = {
        "kafka_request_timeout_ms": "3000",
        "basic_sasl_mechanism": "SCRAM-SHA-512",
        "basic_security_protocol": "SASL_PLAINTEXT",
        "events_topic": TOPIC,
    }
    with running_clusters(folder, url, entries, **options) as running:
        wait_until(lambda: all_have_answered(running), "not all that are there have answered")
        yield running


def state(service: RunningService, name: str, principal: str = "bob") -> dict[str, Any]:
    listed = service.api(principal).get("/clusters").json()["clusters"]
    (found,) = (each for each in listed if each["name"] == name)
    return dict(found)


def all_have_answered(service: RunningService) -> bool:
    """Tell whether those that serve are ready, and the second name knows whose it is."""
    ready = all(state(service, name)["ready"] for name in (HERE, THERE))
    return ready and state(service, TWIN)["cluster_id"] is not None


def below(name: str, path: str) -> str:
    return f"/clusters/{name}{path}"


def alter(
    service: RunningService,
    name: str,
    user: str,
    value: int,
    principal: str = "bob",
    **headers: str,
) -> Any:
    body = {"alterations": [{"entity": {"user": user}, "ops": [{"key": P, "value": value}]}]}
    path = below(name, "/quotas/alterations")
    return service.api(principal).post(path, json=body, headers=headers)


def values(service: RunningService, path: str, user: str) -> list[dict[str, float]]:
    found = service.api("bob").get(f"{path}?filter=user={user}")
    assert found.status_code == 200, found.text
    return [each["values"] for each in found.json()["quotas"]]


def test_each_cluster_is_described_and_altered_below_its_name(service: RunningService):
    user = unique("user")
    answer = alter(service, HERE, user, 1024, "alice")
    assert answer.status_code == 200, answer.text
    assert answer.headers["Location"].startswith(below(HERE, "/quotas/alterations/"))
    there = alter(service, THERE, user, 4096)
    assert there.status_code == 200, there.text
    assert there.json()["cluster_id"] != answer.json()["cluster_id"]
    for path, value in {"/quotas": 1024, below(HERE, "/quotas"): 1024}.items():
        assert values(service, path, user) == [{P: value}]
    assert values(service, below(THERE, "/quotas"), user) == [{P: 4096}]
    resolved = service.api("bob").get(below(THERE, f"/quotas/resolve?user={user}&client-id=x"))
    assert resolved.json()["cluster_id"] == there.json()["cluster_id"]


def test_records_keys_and_plans_are_asked_cluster(service: RunningService):
    user, key = unique("user"), {"Idempotency-Key": unique("key")}
    root = service.api("root")
    first = alter(service, HERE, user, 1, "root", **key)
    second = alter(service, HERE, user, 1, "root", **key)
    assert (first.status_code, second.headers.get("Idempotent-Replayed")) == (200, "true")
    mine = alter(service, THERE, user, 2, "bob", **key)
    assert (mine.status_code, mine.headers.get("Idempotent-Replayed")) == (200, None)
    location = first.headers["Location"]
    assert root.get(location).status_code == 200
    elsewhere = location.replace(below(HERE, ""), below(THERE, ""))
    assert service.api("auditor").get(elsewhere).status_code == 404
    document = {"apiVersion": "quotas/v1", "quotas": [{"entity": {"user": user}, "values": {C: 9}}]}
    plan = service.api("bob").post(
        below(THERE, "/quotas/plans"), json={"document": document, "owner": "team"}
    )
    assert plan.status_code == 200, plan.text
    applied = below(HERE, f"/quotas/plans/{plan.json()['plan_id']}/apply")
    assert root.post(applied, json={}).status_code == 404
    assert values(service, below(HERE, "/quotas"), user) == [{P: 1}]


def test_rights_are_those_of_each_cluster_and_so_are_the_rows_of_who_is_denied(
    service: RunningService,
):
    user = unique("user")
    denied = alter(service, THERE, user, 1, "alice")
    assert (denied.status_code, denied.json()["code"]) == (403, "cluster-authorization-failed")
    assert alter(service, HERE, user, 1, "bob").status_code == 403
    assert alter(service, THERE, user, 1, "root").status_code == 403
    alice = "/audit?action=denied&actor=User:alice"
    rows = service.api("auditor").get(below(THERE, alice)).json()["rows"]
    assert rows[0]["principal"] == "User:alice"
    assert service.api("auditor").get(below(HERE, alice)).status_code == 403
    may = {name: state(service, name, "bob")["permissions"] for name in (HERE, THERE)}
    assert (may[HERE]["alter"], may[THERE]["alter"]) == (False, True)
    assert service.api("root").get(below(THERE, "/me")).json()["permissions"]["alter"] is False
    assert service.api("root").get("/me").json()["permissions"]["alter"] is True


def raw(service: RunningService, path: str, principal: str | None = "bob") -> tuple[int, Any]:
    """Send a path as it is written; return the status and the code of the problem, if any."""
    address = urlsplit(service.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    headers = {} if principal is None else {"Authorization": f"Bearer {principal}"}
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, (re.findall(r'"code":"([a-z-]+)"', text) or [None])[0]
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path",
    [
        *("/clusters/..", "/clusters/../quotas", "/clusters/%2e%2e/quotas"),
        *("/clusters/here%2fquotas", "/clusters%2fhere/quotas", "/clusters/here%2F/quotas"),
        *("/clusters/HERE/quotas", "/clusters/", "/clusters//quotas", "/clusters/nowhere"),
        *(f"/clusters/{'a' * 64}/quotas", "/clusters/here%00/quotas", "/clusters/%ff/quotas"),
        *("/clusters/here;x/quotas", "/clusters/here%20/quotas", "/clusters/default/ui/quotas"),
    ],
)
def test_a_name_that_no_cluster_has_is_not_found_and_nobody_learns_names(
    service: RunningService, path: str
):
    assert raw(service, path) == (404, "no-such-cluster")
    assert raw(service, path, None)[0] == 401
    assert raw(service, path, "nobody-knows-it")[0] == 401


def test_what_is_of_the_service_is_below_no_cluster(service: RunningService):
    for path in ("/livez", "/readyz", "/metrics", "/version", "/clusters", "/clusters/here/quotas"):
        assert raw(service, below(HERE, path)) == (404, "not-found"), path
    assert raw(service, "/clusters/%68ere/quotas") == (200, None)
    start = service.api().get(below(THERE, "")).json()
    assert start["links"]["quotas"] == below(THERE, "/quotas")
    assert start == service.api().get(below(THERE, "/")).json()


def test_one_that_is_away_is_its_own_503(service: RunningService):
    away = alter(service, AWAY, "alice", 1, "root")
    assert (away.status_code, away.json()["sent_to_cluster"]) == (503, "no")
    wait_until(lambda: "brokers respond" in str(state(service, AWAY)["reason"]))
    found = state(service, AWAY)
    assert (found["ready"], found["cluster_id"], found["permissions"]) == (False, None, None)
    states = {HERE: "ok", THERE: "ok", AWAY: "unavailable", TWIN: "unavailable"}

    def of_service() -> tuple[int, Any]:  # a busy broker may not answer in half a second
        answer = service.api().get("/readyz")
        found = answer.json()["clusters"]
        return answer.status_code, {name: each["status"] for name, each in found.items()}

    wait_until(lambda: of_service() == (200, states), "it does not say which clusters are away")
    assert service.api().get("/readyz").json()["problems"] == {}
    asked = {name: service.api().get("/readyz", params={"cluster": name}) for name in (AWAY, HERE)}
    assert {name: answer.status_code for name, answer in asked.items()} == {AWAY: 503, HERE: 200}
    assert list(asked[AWAY].json()["clusters"]) == [AWAY]
    assert service.api().get("/readyz?cluster=nowhere").json()["code"] == "no-such-cluster"


def test_a_second_name_for_a_cluster_serves_nothing_and_says_why(service: RunningService):
    found, first = state(service, TWIN), state(service, THERE)
    assert (found["ready"], found["cluster_id"]) == (False, first["cluster_id"])
    assert f"served as '{THERE}' already" in found["reason"]
    answer = service.api("bob").get(below(TWIN, "/quotas"))
    assert (answer.status_code, answer.json()["code"]) == (503, "wrong-cluster")


def test_a_password_logs_in_at_the_cluster_that_is_asked(service: RunningService):
    api = service.api()
    me = api.get(below(THERE, "/me"), auth=BOB)
    assert me.status_code == 200, me.text
    found = me.json()
    assert (found["principal"], found["authentication"]) == ("User:bob", "basic")
    assert found["permissions"]["alter"] is True
    assert api.get(below(THERE, "/me"), auth=("bob", "wrong")).status_code == 401
    user = unique("user")
    body = {"alterations": [{"entity": {"user": user}, "ops": [{"key": P, "value": 7}]}]}
    answer = api.post(below(THERE, "/quotas/alterations"), json=body, auth=BOB)
    assert answer.status_code == 200, answer.text
    assert values(service, below(THERE, "/quotas"), user) == [{P: 7}]
    assert values(service, below(HERE, "/quotas"), user) == []


def test_a_value_for_a_time_ends_on_its_own_cluster(service: RunningService):
    user = unique("user")
    for name, principal in ((HERE, "root"), (THERE, "bob")):
        assert alter(service, name, user, 1, principal).status_code == 200
    ops = [{"key": P, "value": 9}]
    body = {"expires_in": "4h", "alterations": [{"entity": {"user": user}, "ops": ops}]}
    begun = service.api("bob").post(below(THERE, "/quotas/alterations"), json=body)
    assert begun.status_code == 200, begun.text

    def ends_soon() -> bool:  # on a machine that stalls it may be the past by then, and refused
        at = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
        path = f"{begun.headers['Location']}/expiry"
        return service.api("bob").put(path, json={"expires_at": at}).status_code == 200

    wait_until(ends_soon, "it does not get another end")
    audit = f"/audit?action=expire&entity=user={user}"
    auditor = service.api("auditor")

    def ended() -> list[Any]:  # the row of the intent is there first, without its outcome
        rows = auditor.get(below(THERE, audit)).json()["rows"]
        return [row for row in rows if row["outcome"] == "applied"]

    wait_until(ended, "it does not end")
    (row,) = ended()
    assert (row["before"], row["after"]) == ({P: 9}, {P: 1})
    assert row["cluster_id"] == begun.json()["cluster_id"]
    assert values(service, below(THERE, "/quotas"), user) == [{P: 1}]
    assert service.api("root").get(below(HERE, audit)).json()["rows"] == []


def test_events_of_a_cluster_go_to_its_own_topic(service: RunningService, other: LocalKafka):
    user = unique("user")
    answer = alter(service, THERE, user, 3)
    assert answer.status_code == 200, answer.text
    assert alter(service, HERE, user, 3, "root").status_code == 200

    def of_user() -> list[Any]:
        rows = (record.row for record in read_topic(other.bootstrap_servers, TOPIC))
        return [row for row in rows if row["entity"] == {"user": user}]

    wait_until(lambda: bool(of_user()), "the topic has no event of it")
    assert {row["cluster_id"] for row in of_user()} == {answer.json()["cluster_id"]}
    assert {row["principal"] for row in of_user()} == {"User:bob"}


def test_metrics_and_log_lines_name_the_cluster(service: RunningService):
    assert alter(service, THERE, unique("user"), 1).status_code == 200
    text = service.api().get("/metrics").text
    for name in (HERE, THERE, AWAY):
        assert f'quotas_kafka_connections{{cluster="{name}",state="idle"}}' in text
    assert f'quotas_alterations_total{{cluster="{THERE}",verdict="applied"}}' in text
    assert re.search(rf'duration_seconds_count{{cluster="{THERE}",method="POST",route="/quo', text)
    for name, words in ((THERE, "request"), (AWAY, "no broker")):

        def is_logged(name: str = name, words: str = words) -> bool:
            of_cluster = [line for line in service.lines() if line.get("cluster") == name]
            return any(line["event"].startswith(words) for line in of_cluster)

        wait_until(is_logged, f"no line of {name} begins with {words}")


def test_a_password_lists_clusters_while_the_default_one_is_away(
    service: RunningService, entries: dict[str, dict[str, Any]]
):
    path = Path(service.environ["QUOTAS_CLUSTERS_FILE"])

    def listed() -> list[Any]:
        answer = service.api().get("/clusters", auth=BOB)
        if answer.status_code != 200 or answer.json()["default"] != AWAY:
            return []
        found = answer.json()["clusters"]
        return [(each["ready"], (each["permissions"] or {}).get("alter")) for each in found]

    write_clusters(path, {name: entries[name] for name in (AWAY, THERE)})
    service.send(signal.SIGHUP)
    try:
        wait_until(lambda: listed() == [(False, None), (True, True)], "nobody signs in")
    finally:
        write_clusters(path, entries)
        service.send(signal.SIGHUP)
        bob = service.api("bob")
        wait_until(lambda: bob.get("/clusters").json()["default"] == HERE)
        wait_until(lambda: all_have_answered(service), "not all that are there have answered")


def test_a_signal_reads_the_file_again(service: RunningService, entries: dict[str, dict[str, Any]]):
    path = Path(service.environ["QUOTAS_CLUSTERS_FILE"])

    def served() -> list[str]:
        listed = service.api("bob").get("/clusters").json()
        return [listed["default"], *(each["name"] for each in listed["clusters"])]

    def reload(clusters: dict[str, dict[str, Any]], default: str | None = None) -> None:
        write_clusters(path, clusters, default)
        service.send(signal.SIGHUP)

    ended = len(service.lines())
    without = {name: entry for name, entry in entries.items() if name not in (THERE, AWAY)}
    reload(without | {"new": entries[AWAY]})
    wait_until(lambda: served() == [HERE, HERE, TWIN, "new"])
    assert service.api("bob").get(below(THERE, "/quotas")).json()["code"] == "no-such-cluster"
    wait_until(lambda: state(service, TWIN)["ready"])
    assert alter(service, TWIN, unique("user"), 1).status_code == 200
    wait_until(lambda: f'cluster="{THERE}"' not in service.api().get("/metrics").text)
    reload(without, default="nowhere")
    wait_until(
        lambda: any("'nowhere' is none of" in line["event"] for line in service.lines()[ended:])
    )
    path.write_text("clusters: [", encoding="utf-8")
    service.send(signal.SIGHUP)
    wait_until(lambda: any("not YAML" in line["event"] for line in service.lines()[ended:]))
    assert served() == [HERE, HERE, TWIN, "new"]
    assert alter(service, HERE, unique("user"), 1, "root").status_code == 200
    reload({**entries, HERE: {**entries[HERE], "super_users": ["User:bob"]}})
    wait_until(lambda: alter(service, HERE, unique("user"), 1, "bob").status_code == 200)
    assert alter(service, HERE, unique("user"), 1, "root").status_code == 403
    wait_until(lambda: state(service, THERE)["ready"] and not state(service, TWIN)["ready"])
    reload(entries)
    wait_until(lambda: alter(service, HERE, unique("user"), 1, "root").status_code == 200)
    assert not [line for line in service.lines()[ended:] if line["event"] == "fault"]
