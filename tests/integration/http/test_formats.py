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


def test_each_format_writes_the_same_quotas(api: httpx.Client) -> None:
    answer = api.get("/quotas")
    assert answer.headers["Content-Type"] == JSON
    assert f'"quotas":[{",".join(LINES)}],"next_page_token":null}}' in answer.text
    as_of = answer.json()["as_of"]
    assert datetime.fromisoformat(as_of).utcoffset() is not None
    texts = {NDJSON: "".join(f"{line}\n" for line in LINES), f"{CSV}; charset=utf-8": CSV_TEXT}
    for media_type, text in texts.items():
        answer = api.get("/quotas", headers={"Accept": media_type})
        assert answer.headers["Content-Type"].startswith(media_type)
        assert answer.text == text
    document = yaml.safe_load(api.get("/quotas", headers={"Accept": YAML}).content)
    quotas = [json.loads(line) for line in LINES]
    assert document["quotas"] == [
        {name: each[name] for name in ("entity", "values")} for each in quotas
    ]


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
