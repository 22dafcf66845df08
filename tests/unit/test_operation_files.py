"""What deploy/ has for Prometheus, Grafana and Kubernetes fits them, and the service."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
import yaml

from app.documents.clusters import read_clusters_file
from app.domain.broker_metrics import RESOURCES, quota_metric_of
from app.http.quotas.gauges import LABELS
from app.metrics import Metrics, exposed_name
from app.settings import Settings
from app.startup_checks import find_unsafe

ROOT = Path(__file__).resolve().parents[2]
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text(encoding="utf-8"))
BOARD = json.loads((ROOT / "deploy" / "grafana" / "quotas.json").read_text(encoding="utf-8"))
BROKER_LABELS = {"user", "client_id", "resource"}
TARGET_LABELS = {"instance", "job", "le", "cluster"}
"""Those that Prometheus and its configuration add, and that of a histogram."""


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def queries() -> Iterator[str]:
    for panel in BOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [
        query.replace("$__rate_interval", "5m") for query in queries()
    ]


def labels_by_metric() -> dict[str, set[str]]:
    """Return each name that a scrape of the service may have, with its labels."""
    metrics = Metrics()
    metrics.of_cluster("prod")
    registry = metrics.registry
    found: dict[str, set[str]] = {}
    for collector in registry._collector_to_names:
        names = registry._collector_to_names[collector]
        labels = set(getattr(collector, "_labelnames", ()))
        found |= dict.fromkeys(names, labels)
    for family in registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set())
    return {exposed_name(name): labels for name, labels in found.items()}


def selectors(node: Any) -> Iterator[Any]:
    """Yield the selectors of an expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        child = getattr(node, name, None)
        if child is not None:
            yield from selectors(child)
    for child in getattr(node, "args", None) or ():
        yield from selectors(child)


SERVICE = labels_by_metric() | {name: set(labels) for name, labels in LABELS.items()}


def labels_of_record(name: str) -> set[str]:
    """Return the labels of what a rule records: those it groups by, or of what it rests on."""
    expression = next(rule["expr"] for rule in rules() if rule.get("record") == name)
    grouped = re.match(r"max by \(([^)]*)\)", expression)
    if grouped:
        return {label.strip() for label in grouped[1].split(",")}
    first, *_ = selectors(promql_parser.parse(expression))
    return labels_of_record(first.name)


RECORDED = {
    rule["record"]: labels_of_record(rule["record"]) for rule in rules() if "record" in rule
}


def test_every_expression_asks_for_metrics_and_labels_that_there_are(subtests: pytest.Subtests):
    assert rules()
    assert list(queries())
    for expression in expressions():
        with subtests.test(expression=expression):
            found = list(selectors(promql_parser.parse(expression)))
            assert found
            labels = set(TARGET_LABELS)
            for selector in found:
                is_of_brokers = any(quota_metric_of(selector.name, kind) for kind in RESOURCES)
                of_metric = (
                    BROKER_LABELS if is_of_brokers else {**SERVICE, **RECORDED}[selector.name]
                )
                assert {matcher.name for matcher in selector.matchers.matchers} <= of_metric
                labels |= of_metric
            labels |= set(re.findall(r', "(\w+)", "[^"]*", ', expression))  # of label_replace
            grouped = re.findall(r" by \(([^)]*)\)", expression)
            assert {name.strip() for names in grouped for name in names.split(",")} <= labels


def test_every_alarm_says_what_is_wrong_and_how_bad_it_is():
    alarms = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alarms}) == len(alarms) > 10
    for rule in alarms:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")


def test_the_runbook_says_of_every_alarm_what_to_do():
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    (runbook,) = re.findall(r"^## Alerts\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", runbook, re.MULTILINE)
    assert rows == [rule["alert"] for rule in rules() if "alert" in rule]


def test_every_value_in_an_alarm_is_one_that_the_service_counts():
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    pattern = r"(\w+)\{(\w+)!?=\"([^\"]+)\""
    alarms = [rule["expr"] for rule in rules() if "alert" in rule]
    values = {value for expression in alarms for value in re.findall(pattern, expression)}
    ours = {value for value in values if not value[0].startswith("quotas_http_")}
    assert len(ours) > 3
    for metric, label, value in ours:
        assert f'{metric}{{{label}="{value}"}}' in page


def test_every_level_of_precedence_has_its_limits_beside_rates():
    """The order is that of ``resolve``; a bucket's tags say which levels can apply."""
    found = next(
        rule["expr"] for rule in rules() if rule.get("record") == "kafka_client_quota:limit"
    )
    whose = [re.findall(r"\{([^}]*)\}", branch) for branch in re.split(r"\s+or\s+", found)]
    pair, user, client = (
        'user!="", client_id!=""',
        'user!="", client_id=""',
        'user="", client_id!=""',
    )
    assert whose == [
        [pair, 'user!="", client_id!=""'],
        [pair, 'user!="", client_id_default="true"'],
        [pair, 'user_default="true", client_id!=""'],
        [pair, 'user_default="true", client_id_default="true"'],
        [user, 'user!="", client_id="", client_id_default="false"'],
        [user, 'user_default="true", client_id="", client_id_default="false"'],
        [client, 'user="", user_default="false", client_id!=""'],
        [client, 'user="", user_default="false", client_id_default="true"'],
    ]


def test_the_panels_do_not_overlap_and_have_queries():
    taken = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        taken |= cells
        assert panel["type"] == "row" or panel["targets"]


FOLDER = ROOT / "deploy" / "kubernetes"
RELEASE = "1.33"


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    """Return every manifest by its kind and name."""
    documents = [
        document
        for file in sorted(FOLDER.glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]
    return {(item["kind"], item["metadata"]["name"]): item for item in documents}


def pod(kind: str, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = manifests()[kind, name]["spec"]["template"]["spec"]
    return spec


def environment(kind: str, name: str, folder: Path) -> dict[str, str]:
    """Return the environment of a container; each secret is a file below a folder."""
    (container,) = pod(kind, name)["containers"]
    for volume in pod(kind, name)["volumes"]:
        if "secret" in volume:
            secret = manifests()["Secret", volume["secret"]["secretName"]]["stringData"]
            for file, text in secret.items():
                (folder / file).write_text(text)
    environ = {item["name"]: item["value"] for item in container["env"]}
    for source in container.get("envFrom", ()):
        environ |= manifests()["ConfigMap", source["configMapRef"]["name"]]["data"]
    secrets = "/run/secrets/quotas/"
    return {name: value.replace(secrets, f"{folder}/") for name, value in environ.items()}


def test_every_manifest_fits_the_published_schema(subtests: pytest.Subtests):
    assert len(manifests()) > 1
    for item in manifests().values():
        with subtests.test(item["kind"]):
            kubernetes_validate.validate(item, RELEASE, strict=True)


def test_the_schema_refuses_a_misspelt_word():
    item = manifests()["Deployment", "kafka-quota-service"]
    item["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(item, RELEASE, strict=True)


def test_the_service_understands_its_settings_and_finds_none_unsafe(tmp_path: Path):
    environ = environment("Deployment", "kafka-quota-service", tmp_path)
    settings = Settings.from_env({"QUOTAS_HOST": "0.0.0.0", **environ})
    assert find_unsafe(settings) == []
    (container,) = pod("Deployment", "kafka-quota-service")["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": settings.port, "operations": settings.operations_port}
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [(probe["path"], probe["port"]) for probe in probes] == [
        ("/livez", "operations"),
        ("/livez", "operations"),
        ("/readyz", "operations"),
    ]
    grace_s = settings.shutdown_delay_s + settings.shutdown_grace_s
    assert pod("Deployment", "kafka-quota-service")["terminationGracePeriodSeconds"] > grace_s


def test_the_example_of_several_clusters_is_read(tmp_path: Path):
    example = manifests()["ConfigMap", "kafka-quota-clusters"]["data"]["clusters.yaml"]
    for secret in ("kafka-password", "kafka-password-staging"):
        (tmp_path / secret).write_text("secret")
    path = tmp_path / "clusters.yaml"
    path.write_text(example.replace("/run/secrets/quotas", str(tmp_path)), encoding="utf-8")
    clusters = read_clusters_file(path)
    assert (clusters.default, [*clusters.clusters]) == ("prod", ["prod", "staging"])


def test_the_migration_alone_has_the_owner_s_password(tmp_path: Path):
    environ = environment("Job", "kafka-quota-migrate", tmp_path)
    settings = Settings.from_env({"QUOTAS_KAFKA_BOOTSTRAP_SERVERS": "unused:0", **environ})
    assert settings.owner_database_url.startswith("postgresql://quotas_owner:")
    assert "owner" not in str(manifests()["Secret", "kafka-quota-service"])


@pytest.mark.parametrize(
    ("kind", "name"), [("Deployment", "kafka-quota-service"), ("Job", "kafka-quota-migrate")]
)
def test_no_container_has_more_rights_than_the_image_needs(kind: str, name: str):
    spec = pod(kind, name)
    (container,) = spec["containers"]
    user = spec["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}
