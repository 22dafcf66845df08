"""``GET /quotas`` in four formats: which one is sent, and how each writes the same quotas."""

import json
from collections.abc import Iterator
from datetime import datetime

import httpx
import pytest
import yaml

from tests.integration.http.service_calls import C, I, P, R
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas, entity_of
from tests.testkit.service import RunningService

JSON, NDJSON, CSV, YAML = (
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "application/yaml",
)
WORLD = {
    entity_of({"user": "alice", "client-id": None}): {P: 2.0**63, R: 12.5},
    entity_of({"user": None}): {C: 1024.0},
    entity_of({"client-id": "=cmd"}): {P: 1.0},
    entity_of({"ip": "10.0.0.1"}): {I: 100000.0},
}
ENTITY_KEYS = {
    "10.0.0.1": "eyJpcCI6IjEwLjAuMC4xIn0",
    "=cmd": "eyJjbGllbnQtaWQiOiI9Y21kIn0",
    "default": "eyJ1c2VyIjpudWxsfQ",
    "alice": "eyJjbGllbnQtaWQiOm51bGwsInVzZXIiOiJhbGljZSJ9",
}
LINES = [
    (
        f'{{"entity":{{"ip":"10.0.0.1"}},"entity_key":"{ENTITY_KEYS["10.0.0.1"]}",'
        '"values":{"connection_creation_rate":100000}}'
    ),
    (
        f'{{"entity":{{"client-id":"=cmd"}},"entity_key":"{ENTITY_KEYS["=cmd"]}",'
        '"values":{"producer_byte_rate":1}}'
    ),
    (
        f'{{"entity":{{"user":null}},"entity_key":"{ENTITY_KEYS["default"]}",'
        '"values":{"consumer_byte_rate":1024}}'
    ),
    (
        f'{{"entity":{{"user":"alice","client-id":null}},"entity_key":"{ENTITY_KEYS["alice"]}",'
        '"values":{"producer_byte_rate":9223372036854775807,"request_percentage":12.5}}'
    ),
]
CSV_TEXT = (
    "user_kind,client_id_kind,ip_kind,user,client-id,ip,key,value\r\n"
    "absent,absent,name,,,10.0.0.1,connection_creation_rate,100000\r\n"
    "absent,name,absent,,'=cmd,,producer_byte_rate,1\r\n"
    "default,absent,absent,,,,consumer_byte_rate,1024\r\n"
    "name,default,absent,alice,,,producer_byte_rate,9223372036854775807\r\n"
    "name,default,absent,alice,,,request_percentage,12.5\r\n"
)


@pytest.fixture(scope="module")
def api(service: RunningService, raw: RawQuotas) -> Iterator[httpx.Client]:
    """Bob, looking at a small world that he knows."""
    raw.become(WORLD)
    yield service.api("bob")
    raw.become({})


def test_json_is_the_default_and_has_the_fields_of_the_contract(api: httpx.Client) -> None:
    answer = api.get("/quotas")
    assert answer.headers["Content-Type"] == JSON
    document = answer.json()
    assert list(document) == ["cluster_id", "as_of", "quotas", "next_page_token"]
    assert document["quotas"] == [json.loads(line) for line in LINES]
    assert document["next_page_token"] is None
    assert datetime.fromisoformat(document["as_of"]).utcoffset() is not None
    assert len(document["as_of"]) == len("2026-11-21T01:02:03.456Z")


def test_integral_values_are_written_without_a_fraction(api: httpx.Client) -> None:
    text = api.get("/quotas").text
    assert f'"quotas":[{",".join(LINES)}]' in text


def test_ndjson_is_one_quota_a_line(api: httpx.Client) -> None:
    answer = api.get("/quotas", headers={"Accept": NDJSON})
    assert answer.headers["Content-Type"] == NDJSON
    assert answer.text == "".join(f"{line}\n" for line in LINES)


def test_csv_has_a_column_for_each_kind_and_nothing_that_a_spreadsheet_runs(
    api: httpx.Client,
) -> None:
    answer = api.get("/quotas", headers={"Accept": CSV})
    assert answer.headers["Content-Type"].startswith("text/csv; charset=utf-8")
    assert answer.text == CSV_TEXT


def test_yaml_is_the_document_of_an_export(api: httpx.Client) -> None:
    answer = api.get("/quotas", headers={"Accept": YAML})
    assert answer.headers["Content-Type"] == YAML
    assert yaml.safe_load(answer.content) == {
        "apiVersion": "quotas/v1",
        "quotas": [
            {"entity": quota["entity"], "values": quota["values"]}
            for quota in map(json.loads, LINES)
        ],
    }


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        (NDJSON, ""),
        (CSV, CSV_TEXT.partition("\n")[0] + "\n"),
        (YAML, "apiVersion: quotas/v1\nquotas: []\n"),
    ],
)
def test_nothing_is_still_a_document(api: httpx.Client, media_type: str, body: str) -> None:
    answer = api.get(
        "/quotas", params={"filter": f"user={unique()}"}, headers={"Accept": media_type}
    )
    assert (answer.status_code, answer.text) == (200, body)


def test_the_format_is_the_one_that_the_caller_likes_best(
    api: httpx.Client, subtests: pytest.Subtests
) -> None:
    for accept, media_type in [
        ("*/*", JSON),
        ("", JSON),
        ("application/*", JSON),
        ("text/*", CSV),
        ("text/csv;q=0.5, application/yaml;q=0.9", YAML),
        ("application/yaml, application/json", JSON),
        ("application/json;q=0, */*", NDJSON),
        ("text/html, */*;q=0.1", JSON),
        ("TEXT/CSV", CSV),
        ("application/json; charset=utf-8", JSON),
        ("application/x-ndjson;q=1.000, text/csv;q=0.999", NDJSON),
        ("text/html, application/yaml", YAML),
    ]:
        with subtests.test(accept=accept, media_type=media_type):
            answer = api.get("/quotas", headers={"Accept": accept})
            assert answer.status_code == 200
            assert answer.headers["Content-Type"].partition(";")[0] == media_type
            assert "Accept" in answer.headers["Vary"]


def test_no_acceptable_format_is_406_and_the_problem_names_those_that_there_are(
    api: httpx.Client, subtests: pytest.Subtests
) -> None:
    for accept in ["text/html", "application/xml, image/*", "*/*;q=0", "application/json;q=0"]:
        with subtests.test(accept=accept):
            answer = api.get("/quotas", headers={"Accept": accept})
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (406, "not-acceptable")
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert all(item in problem["detail"] for item in (JSON, NDJSON, CSV, YAML))


def test_the_caller_is_judged_before_the_format(service: RunningService) -> None:
    headers = {"Accept": "text/html"}
    assert service.api("mallory").get("/quotas", headers=headers).status_code == 403
    assert httpx.get(f"{service.url}/quotas", headers=headers, timeout=30).status_code == 401


@pytest.mark.parametrize("media_type", [NDJSON, CSV, YAML])
def test_other_formats_carry_in_headers_what_only_json_has_members_for(
    api: httpx.Client, media_type: str
) -> None:
    document = api.get("/quotas", params={"page_size": 1}).json()
    answer = api.get("/quotas", params={"page_size": 1}, headers={"Accept": media_type})
    assert answer.headers["X-Cluster-Id"] == document["cluster_id"]
    assert answer.headers["X-As-Of"] >= document["as_of"]
    following = api.get(
        "/quotas", params={"page_size": 3, "page_token": answer.headers["X-Next-Page-Token"]}
    )
    assert following.json()["quotas"] == [json.loads(line) for line in LINES[1:]]
