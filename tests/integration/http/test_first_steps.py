"""The path that everything else widens: alter, describe, resolve, audit, over HTTP."""

from tests.testkit.kafka import unique
from tests.testkit.service import RunningService


def test_a_change_is_applied_described_resolved_and_found_in_the_audit_log(
    service: RunningService,
) -> None:
    user = unique("user")
    entity = {"user": user}
    answer = service.alter(
        {"entity": entity, "ops": [{"key": "producer_byte_rate", "value": 1048576}]},
        reason="INC-4711 raise for backfill",
    )
    assert answer.status_code == 200, answer.text
    altered = answer.json()
    assert altered["outcome"] == "applied"
    assert altered["readable"] is True
    described = service.api("bob").get("/quotas", params={"filter": f"user={user}"}).json()
    assert [quota["values"] for quota in described["quotas"]] == [{"producer_byte_rate": 1048576}]
    resolved = service.api("bob").get("/quotas/resolve", params={"user": user}).json()
    assert resolved["quotas"]["producer_byte_rate"]["source"] == {
        "entity": entity,
        "level": 3,
        "name": "user",
    }
    rows = service.api("auditor").get("/audit", params={"entity": f"user={user}"}).json()["rows"]
    assert [(row["outcome"], row["reason"], row["after"]) for row in rows] == [
        ("applied", "INC-4711 raise for backfill", {"producer_byte_rate": 1048576})
    ]
    record = service.api().get(answer.headers["Location"]).json()
    assert [event["event"] for event in record["history"]] == ["intent", "sent", "outcome"]
    assert record["results"] == altered["results"]
