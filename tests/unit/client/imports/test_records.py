"""Lists of quotas: of rpk, kafka-ui, Aiven, Huawei and this command itself."""

import json
from pathlib import Path

import pytest

from app.client.errors import UsageError
from tests.unit.client.imports.conftest import C, P, R, imported

RPK = """\
quotas:
    - entity:
        - name: alice
          type: user
        - name: <default>
          type: client-id
      values:
        - key: producer_byte_rate
          value: "1024"
        - key: consumer_byte_rate
    - entity:
        - name: team-
          type: client-id-prefix
      values:
        - key: consumer_byte_rate
          values: "2"
"""


def test_a_default_of_rpk_is_the_default(tmp_path: Path):
    read = imported(tmp_path, RPK)
    assert read.quotas == [({"client-id": None, "user": "alice"}, {P: 1024})]
    assert read.lost == [
        "10: {user=alice, client-id=<default>}: a value without key or number",
        "15: {client-id-prefix=team-} consumer_byte_rate=2: Kafka has no such entity",
    ]


def test_lines_of_rpk_are_read(tmp_path: Path):
    text = """\
client-id=<default>,user=CN=a,O=b
\tproducer_byte_rate=1024
\tconsumer_byte_rate=9223372036854775807

client-id-prefix=team-
\tconsumer_byte_rate=2
"""
    read = imported(tmp_path, text)
    assert read.quotas == [
        ({"client-id": None, "user": "CN=a,O=b"}, {P: 1024, C: 9223372036854775807})
    ]
    assert read.lost == [
        "6: {client-id-prefix=team-} consumer_byte_rate=2: Kafka has no such entity"
    ]
    assert imported(tmp_path, "no quotas matched to describe\n").quotas == []


def test_null_of_kafka_ui_may_be_two_things_and_one_warning_says_so(tmp_path: Path):
    rows = [
        {"user": "alice", "clientId": None, "ip": None, "quotas": {P: 1024.0}},
        {"user": None, "clientId": "etl", "ip": None, "quotas": {R: 5.5}},
        {"user": None, "clientId": None, "ip": None, "quotas": {C: 5}},
    ]
    read = imported(tmp_path, json.dumps(rows))
    assert read.quotas == [({"client-id": "etl"}, {R: 5.5}), ({"user": "alice"}, {P: 1024})]
    (loss,) = read.lost
    assert "which default it is" in loss
    assert len(read.warnings) == 1


def test_pairs_that_kafka_ui_shows_alike_do_not_hide_each_other(tmp_path: Path):
    rows = [{"user": "a", "quotas": {P: 1}}, {"user": "a", "quotas": {P: 2}}]
    assert len(imported(tmp_path, json.dumps(rows)).lost) == 1


def test_a_list_of_aiven_is_read(tmp_path: Path):
    rows = [
        {"user": "default", "client-id": "default", C: 10, P: None},
        {"client-id": "app", R: 25},
    ]
    for value in (rows, {"quotas": rows}):
        read = imported(tmp_path, json.dumps(value), "aiven")
        assert read.quotas == [
            ({"client-id": "app"}, {R: 25}),
            ({"client-id": None, "user": None}, {C: 10}),
        ]
        assert read.lost == []


def test_a_list_of_huawei_has_flags_for_defaults(tmp_path: Path):
    row = {"user-default": True, "client": "default", "producer-byte-rate": 7, "count": 1}
    assert imported(tmp_path, json.dumps({"quotas": [row], "count": 1})).quotas == [
        ({"client-id": "default", "user": None}, {P: 7})
    ]


def test_a_document_of_our_own_is_read_with_its_aliases(tmp_path: Path):
    text = """\
apiVersion: quotas/v1
quotas:
  - entity: {user: a, client-id: null}
    values: &v {producer_byte_rate: 1.0E7}
  - entity: {user: "<default>"}
    values: *v
"""
    read = imported(tmp_path, text)
    assert read.quotas == [
        ({"user": "<default>"}, {P: 10000000}),
        ({"client-id": None, "user": "a"}, {P: 10000000}),
    ]


def test_units_and_words_of_a_document_are_read(tmp_path: Path):
    values = f"{{{P}: 10MiB, {C}: unlimited, {R}: 80%, controller_mutation_rate: unset}}"
    read = imported(tmp_path, f"quotas: [{{entity: {{user: a}}, values: {values}}}]\n")
    assert read.quotas == [({"user": "a"}, {P: 10485760, C: 9223372036854775807, R: 80})]
    (loss,) = read.lost
    assert "controller_mutation_rate=unset: not a number over 0" in loss


def test_a_described_value_that_is_temporary_is_a_warning(tmp_path: Path):
    quota = {
        "entity": {"user": "a"},
        "values": {P: 5},
        "owners": {P: "team"},
        "temporary": {P: {"expires_at": "2026-01-01T00:00:00.000Z", "returns_to": 1}},
    }
    read = imported(tmp_path, json.dumps({"quotas": [quota], "next_page_token": None}))
    assert (read.quotas, read.lost) == ([({"user": "a"}, {P: 5})], [])
    assert read.warnings == [f"1: {{user=a}} {P} is temporary, here it is for good"]


@pytest.mark.parametrize("more", [{"next_page_token": "x"}, {"metadata": {"next": "/x"}}])
def test_one_page_of_an_answer_is_not_all_of_it(tmp_path: Path, more: dict[str, object]):
    quota = {"entity": {"user": "a"}, "values": {P: 5}}
    (loss,) = imported(tmp_path, json.dumps({"quotas": [quota], **more})).lost
    assert "one page" in loss


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"entity": {"user": "a"}, "values": {P: "much"}}, f"{P}=much: not a number over 0"),
        ({"entity": {"user": "a", "ip": "::1"}, "values": {P: 1}}, "Kafka has no such entity"),
        ({"entity": {"user": ""}, "values": {P: 1}}, "Kafka has no such entity"),
        ({"entity": {"user": "a"}, "limits": {P: 1}}, f"limits.{P}: not read"),
        ({"entity": {"user": "a"}, "values": {"burst": 1}}, "burst: not a quota key"),
        ("text", "a record: a record of quotas that is a text of no tool's shape"),
        ({"user": "a"}, "{user=a}: a record of quotas that is a mapping of no tool's shape"),
    ],
)
def test_a_record_that_is_not_read_is_lost(tmp_path: Path, record: object, sentence: str):
    first = {"entity": {"user": "b"}, "values": {P: 1}}
    read = imported(tmp_path, json.dumps({"quotas": [first, record]}))
    assert read.quotas == [({"user": "b"}, {P: 1})]
    (loss,) = read.lost
    assert sentence in loss


@pytest.mark.parametrize("value", ["5e-324", "1.7976931348623157e308", "12.5", "NaN", "unset"])
def test_csv_of_our_own_is_read(tmp_path: Path, value: str):
    long = "user_kind,client_id_kind,ip_kind,user,client-id,ip,key,value"
    for text in (
        f"{long}\r\nname,default,absent,'=a\0,,,request_percentage,{value}\r\n",
        f"user;client-id;request_percentage;producer_byte_rate\n'=a\0;<default>;{value};\n",
    ):
        read = imported(tmp_path, text)
        entity = {"user": "=a\0", "client-id": None}
        if value in ("NaN", "unset"):
            (loss,) = read.lost
            assert loss.startswith("2: {user==a\\x00, client-id=<default>} request_percentage=")
        else:
            assert (read.quotas, read.lost) == ([(entity, {R: float(value)})], [])


def test_faults_of_csv_have_their_lines(tmp_path: Path):
    with pytest.raises(
        UsageError, match=r"foreign:3: \{user=b\} request_percentage=x: not a number"
    ):
        imported(tmp_path, "user,request_percentage\na,5\nb,x\n")


def test_lines_of_rpk_are_read_with_the_blanks_of_a_terminal(tmp_path: Path):
    text = (
        "user=a, client-id=<default>\n        producer_byte_rate=2.5e+06\n\n"
        "user=b\n\trequest_percentage=5"
    )
    assert imported(tmp_path, text).quotas == [
        ({"user": "a", "client-id": None}, {P: 2500000}),
        ({"user": "b"}, {R: 5}),
    ]
