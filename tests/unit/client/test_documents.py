"""Documents: strict, and every fault with its line."""

import json
from pathlib import Path

import pytest

from app.client.documents import read_document, read_identities
from app.client.errors import UsageError
from app.client.output import document_lines

HEAD = "apiVersion: quotas/v1\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "quotas.yaml"


def faults(file: Path, text: str) -> list[str]:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read_document(str(file))
    return [line.removeprefix(f"{file}:") for line in str(refused.value).splitlines()]


def quotas(file: Path, text: str) -> list[dict[str, object]]:
    file.write_text(text, encoding="utf-8")
    found: list[dict[str, object]] = read_document(str(file)).body()["quotas"]
    return found


def test_comments_order_and_style_do_not_matter(file: Path):
    text = (
        "# why\nquotas:\n- values:\n    producer_byte_rate: 10MiB   # enough\n"
        '    request_percentage: "50%"\n  entity: {"client-id": ~, user: "<default>"}\n' + HEAD
    )
    assert quotas(file, text) == [
        {
            "entity": {"client-id": None, "user": "<default>"},
            "values": {"producer_byte_rate": 10485760, "request_percentage": 50},
        }
    ]


def test_values_that_are_no_numbers_are_passed_on(file: Path):
    text = f'{HEAD}quotas: [{{entity: {{user: a}}, values: {{request_percentage: "NaN"}}}}]'
    assert quotas(file, text)[0]["values"] == {"request_percentage": "NaN"}


def test_an_answer_of_describe_is_a_document(file: Path):
    answer = {
        "cluster_id": "c",
        "as_of": "2026-11-21T00:00:00.000Z",
        "quotas": [{"entity": {"user": "a\U0001f600/"}, "values": {"producer_byte_rate": 1}}],
        "next_page_token": None,
    }
    assert quotas(file, json.dumps(answer)) == answer["quotas"]
    assert faults(file, json.dumps({**answer, "next_page_token": "x"}))[0].startswith("1: this is ")


@pytest.mark.parametrize(
    ("entity", "line"),
    [
        ("{user: alice, user: bob}", "user is there twice (before: line 3)"),
        ("{user: 12}", 'user is a text: write it in quotes, "12"'),
        ("{user: yes}", 'user is a text: write it in quotes, "yes"'),
        ("{user: 2026-01-01}", 'user is a text: write it in quotes, "2026-01-01"'),
        ("{user: }", "user has no name; write null for the default entity"),
        ("{user: [a]}", "user is a text, or null for the default entity"),
        ("{group: a}", "group is unknown here; allowed: client-id, ip, user"),
        ("{}", "an entity has at least one type"),
        ("alice", "this is a text, not a mapping"),
    ],
)
def test_an_invalid_entity_is_reported_with_its_line(file: Path, entity: str, line: str):
    assert f"3: {line}" in faults(file, f"{HEAD}quotas:\n  - entity: {entity}\n    values: {{}}\n")


@pytest.mark.parametrize("value", ["010", "0x10", "1_000", "1:30", "true", ".nan", "[1]", "10 MX"])
def test_a_value_is_a_number_in_plain_digits(file: Path, value: str):
    text = (
        f"{HEAD}quotas:\n  - entity: {{user: a}}\n    values:\n      request_percentage: {value}\n"
    )
    (fault,) = faults(file, text)
    assert fault.startswith("5: {user=a} request_percentage")


def test_duplicates_and_unknown_members_are_all_reported(file: Path):
    text = (
        HEAD + "quotas:\n"
        "  - entity: {user: a}\n    values: {producer_byte_rate: 1, producer_byte_rate: 2}\n"
        "  - entity: {user: a}\n    value: {}\nowner: me\n"
    )
    allowed = "apiVersion, as_of, cluster_id, next_page_token, quotas, total"
    assert faults(file, text) == [
        "4: producer_byte_rate is there twice (before: line 4)",
        "5: the entity {user=a} is there twice (before: line 3)",
        "5: values is missing",
        "6: value is unknown here; allowed: entity, entity_key, values",
        f"7: owner is unknown here; allowed: {allowed}",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        f"{HEAD}quotas: []\n---\n{HEAD}",
        f"{HEAD}quotas: &a []\nx: *a\n",
        "apiVersion: quotas/v2\nquotas: []",
        HEAD,
        '{"quotas": []} x',
        '{"quotas": [], "quotas": []}',
        "[]",
        "\t",
        "[" * 5000,
        "quotas: " + "[" * 5000,
    ],
)
def test_what_is_no_document_is_refused(file: Path, text: str):
    assert faults(file, text)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", "1: this is empty: "),
        ("# nothing\n", "1: this is empty: "),
        ("Team a\n,,\nuser,producer_byte_rate\n", "1: this is a text, and no document: "),
        ("- entity: {user: a}\n  values: {}\n", "1: this is a list, and no document: "),
        (HEAD, "1: quotas is missing: "),
    ],
)
def test_a_text_that_is_no_document_gets_a_sentence_about_documents(
    file: Path, text: str, start: str
):
    (fault,) = faults(file, text)
    assert fault == (
        f"{start}a document is YAML or JSON with quotas, or CSV whose first line names "
        "user, client-id or ip and quota keys"
    )


def test_an_entity_twice_in_one_line_is_refused(file: Path):
    quota = {"entity": {"user": "a"}, "values": {}}
    (fault,) = faults(file, json.dumps({"quotas": [quota, quota]}))
    assert fault.startswith("1: the entity {user=a} is there twice")


def test_pointers_of_the_service_are_found_in_the_file(file: Path):
    file.write_text(f"{HEAD}quotas:\n  - entity: {{user: a}}\n    values:\n      a/b: 1\n")
    document = read_document(str(file))
    assert document.locate("/document/quotas/0/values/a~1b") == f"{file}:5"
    assert document.locate("/document/quotas/0/entity/ip") == f"{file}:3"
    assert document.locate("/owner") is None


def test_what_is_written_is_read_back(file: Path):
    written = [
        {"entity": {"user": "no", "client-id": None}, "values": {"a": 0.1, "b": 2**63 - 1}},
        {"entity": {"user": '"\\\n\u202e\U0001f600 #:'}, "values": {"c": 1e22, "d": "NaN"}},
    ]
    assert quotas(file, "\n".join(document_lines(written))) == written


def test_blanks_after_a_comma_are_no_name_and_those_in_quotes_are(file: Path):
    file.write_text('user, client-id\nalice, etl\r\nbob, " x"\n', encoding="utf-8")
    assert read_identities(str(file)) == [
        {"user": "alice", "client-id": "etl"},
        {"user": "bob", "client-id": " x"},
    ]


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_of_identities_is_refused(file: Path, text: str):
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=":1: the file is empty; write a list of identities"):
        read_identities(str(file))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("user,producer_byte_rate\na,1\n".encode("utf-16"), " is UTF-16: save it as UTF-8"),
        (
            "user,producer_byte_rate\na,1\n\u00fc,2\n".encode("cp1252"),
            ":3: this is not UTF-8: save",
        ),
    ],
)
def test_a_file_that_is_not_utf_8_says_how_to_save_it(file: Path, content: bytes, sentence: str):
    file.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_document(str(file))
    assert str(refused.value).startswith(f"{file}{sentence}")


def test_more_faults_than_are_listed_are_counted(file: Path):
    rows = "".join(f"u{number},x\n" for number in range(2_000))
    lines = faults(file, f"user,request_percentage\n{rows}")
    assert (len(lines), lines[-1]) == (101, "and at least 900 more")
