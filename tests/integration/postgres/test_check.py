"""``kafka-quota-service check``: a line for each subject, and what to do."""

from pathlib import Path

import pytest

from app.localdev.kafka import LocalKafka
from app.main import main
from tests.integration.postgres.calls import run_as
from tests.testkit.clusters import write_clusters
from tests.testkit.kafka import PLAIN_USERS
from tests.testkit.postgres import AuditDatabase
from tests.testkit.service import write_tokens

NOBODY = "127.0.0.1:1"


@pytest.fixture
def environ(
    audit_database: AuditDatabase,
    broker: LocalKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> pytest.MonkeyPatch:
    """The settings of a service that could serve, in the environment."""
    monkeypatch.setenv("QUOTAS_DATABASE_URL", audit_database.service_url)
    monkeypatch.setenv("QUOTAS_KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("QUOTAS_TOKENS_FILE", str(write_tokens(tmp_path)))
    return monkeypatch


def checked(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, list[str]]]:
    """Return the exit code, and the sentences of each word and subject."""
    code = main(["check"])
    printed = capsys.readouterr()
    assert printed.err == ""
    lines: dict[str, list[str]] = {}
    for line in printed.out.splitlines():
        word, subject, sentence = line.split(maxsplit=2)
        lines.setdefault(f"{word} {subject}", []).append(sentence)
    return code, lines


@pytest.mark.usefixtures("environ")
def test_what_could_serve_is_ok(capsys: pytest.CaptureFixture[str]):
    code, lines = checked(capsys)
    assert code == 0
    assert {"ok settings", "ok database", "ok clock", "ok brokers", "ok rights"} <= lines.keys()
    assert [each for each in lines if each.startswith("FAILS")] == []
    assert lines["ok rights"] == [
        "the service's account has Describe, DescribeConfigs, AlterConfigs on the cluster"
    ]
    assert lines["ok callback"] == ["none: Kafka's own rules decide"]
    assert [each for each in lines["warning database"] if "Postgres has fsync off" in each]


def test_every_fault_is_a_line_with_what_to_do(
    environ: pytest.MonkeyPatch,
    audit_database: AuditDatabase,
    broker: LocalKafka,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    run_as(audit_database.owner_url, "update alembic_version set version_num = '0000'")
    (tmp_path / "policy.yaml").write_text("rules: 7")
    (tmp_path / "callback.yaml").write_text("class: org.example.Ours\nmodel: unknown\n")
    for name, value in {
        "QUOTAS_POLICY_FILE": str(tmp_path / "policy.yaml"),
        "QUOTAS_CALLBACK_FILE": str(tmp_path / "callback.yaml"),
        "QUOTAS_PORT": "no port",
        "QUOTAS_KAFKA_BOOTSTRAP_SERVERS": broker.sasl_bootstrap_servers,
        "QUOTAS_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "QUOTAS_KAFKA_SASL_MECHANISM": "PLAIN",
        "QUOTAS_KAFKA_SASL_USERNAME": "nobody",
        "QUOTAS_KAFKA_SASL_PASSWORD": PLAIN_USERS["nobody"],
    }.items():
        environ.setenv(name, value)
    code, lines = checked(capsys)
    assert code == 1
    assert [each for each in lines["FAILS settings"] if each.startswith("QUOTAS_PORT")]
    assert [each for each in lines["FAILS policy"] if each.startswith("QUOTAS_POLICY_FILE")]
    assert [each for each in lines["FAILS callback"] if "is no model" in each]
    assert "run `kafka-quota-service migrate`" in lines["FAILS database"][0]
    assert "ok brokers" in lines
    assert lines["FAILS rights"][0].endswith(
        "--operation Describe --operation DescribeConfigs --operation AlterConfigs"
    )


def test_a_callback_that_no_broker_has_is_a_warning(
    environ: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "callback.yaml"
    file.write_text("class: org.example.Ours\nmodel: kafka\n")
    environ.setenv("QUOTAS_CALLBACK_FILE", str(file))
    code, lines = checked(capsys)
    assert (code, "org.example.Ours" in lines["warning callback"][0]) == (0, True)


def test_in_development_the_schema_is_a_warning(
    environ: pytest.MonkeyPatch, audit_database: AuditDatabase, capsys: pytest.CaptureFixture[str]
):
    run_as(audit_database.owner_url, "update alembic_version set version_num = '0000'")
    environ.setenv("QUOTAS_MODE", "development")
    code, lines = checked(capsys)
    assert (code, "older than" in lines["warning database"][0]) == (0, True)


def test_what_cannot_be_reached_is_a_fault(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    environ.setenv("QUOTAS_DATABASE_URL", f"postgresql://quotas@{NOBODY}/quotas")
    environ.setenv("QUOTAS_KAFKA_BOOTSTRAP_SERVERS", NOBODY)
    code, lines = checked(capsys)
    assert code == 1
    assert "the audit log cannot be looked at yet" in lines["FAILS database"][0]
    assert "the cluster cannot be looked at yet" in lines["FAILS brokers"][0]
    assert [each for each in lines if each.endswith("rights")] == []


def test_each_cluster_of_a_file_has_its_lines(
    environ: pytest.MonkeyPatch,
    broker: LocalKafka,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    environ.delenv("QUOTAS_KAFKA_BOOTSTRAP_SERVERS")
    clusters = {
        "here": {"bootstrap_servers": broker.bootstrap_servers},
        "twin": {"bootstrap_servers": broker.bootstrap_servers},
        "away": {"bootstrap_servers": NOBODY},
    }
    write_clusters(tmp_path / "clusters.yaml", clusters)
    environ.setenv("QUOTAS_CLUSTERS_FILE", str(tmp_path / "clusters.yaml"))
    code, lines = checked(capsys)
    assert code == 1
    assert [each.split(":")[0] for each in lines["ok brokers"]] == ["here", "twin"]
    assert [each.split(":")[0] for each in lines["ok rights"]] == ["here", "twin"]
    twice, away = lines["FAILS brokers"]
    assert twice.startswith("twin: ")
    assert twice.endswith("is served as here already")
    assert away.startswith("away: the cluster cannot be looked at yet")
