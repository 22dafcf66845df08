"""CSV in: what ``GET /quotas`` writes, and the short form that people keep in a spreadsheet."""

from decimal import Decimal
from typing import Any

import pytest

from app.documents.faults import UnreadableDocumentError
from app.documents.tables import HEADER, is_csv, read_csv

LONG = ",".join(HEADER)
UNITS = "units of a byte rate are B, kB, KB, MB, GB, TB, KiB, MiB, GiB, TiB (or none: bytes"
SHORT = "user,client-id,producer_byte_rate,request_percentage"


def quotas(text: str) -> list[tuple[dict[str, str | None], dict[str, Any]]]:
    return [(quota.entity.as_dict(), dict(quota.values)) for quota in read_csv(text).quotas]


def faults(text: str, most: int | None = None) -> list[str]:
    with pytest.raises(UnreadableDocumentError) as refused:
        read_csv(text, most)
    return [f"{fault.line}: {fault.detail}" for fault in refused.value.faults]


def test_rows_of_the_long_form_are_the_values_of_an_entity():
    text = (
        f"{LONG}\r\n"
        "name,default,absent,alice,,,producer_byte_rate,1024\r\n"
        "absent,absent,name,,,10.0.0.1,connection_creation_rate,5\r\n"
        "name,default,absent,alice,,,request_percentage,'-0.5\r\n"
        "name,absent,absent,'=1+1,,,a_key_of_tomorrow,NaN\r\n"
        "name,absent,absent,<default>,,,consumer_byte_rate,4MiB\r\n"
    )
    read = quotas(text)
    assert read[0] == (
        {"client-id": None, "user": "alice"},
        {"producer_byte_rate": Decimal(1024), "request_percentage": Decimal("-0.5")},
    )
    assert [str(entity) for entity, _ in read[1:]] == [
        "{'ip': '10.0.0.1'}",
        "{'user': '=1+1'}",
        "{'user': '<default>'}",
    ]
    assert read[3][1] == {"consumer_byte_rate": Decimal(4 * 2**20)}


def test_the_short_form_has_a_column_for_each_key():
    text = (
        f"{SHORT}\n"
        "alice,,4MiB,80%\n"
        "alice,<default>,,unset\n"
        "'<default>,' x,500kB,\n"
        '<default>," x",unlimited,\n'
        ",, ,\n"
    )
    assert quotas(text) == [
        ({"user": "alice"}, {"producer_byte_rate": 4 * 2**20, "request_percentage": 80}),
        ({"client-id": None, "user": "alice"}, {"request_percentage": None}),
        ({"client-id": " x", "user": "<default>"}, {"producer_byte_rate": 500_000}),
        ({"client-id": " x", "user": None}, {"producer_byte_rate": 2**63}),
    ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_spreadsheets_save_is_read(delimiter: str, mark: str, end: str):
    rows = ["user,producer_byte_rate", '"a;b",4MiB', "bob", ","]
    text = mark + end.join(row.replace(",", delimiter) for row in rows)
    assert is_csv(text)
    assert quotas(text) == [
        ({"user": "a;b"}, {"producer_byte_rate": 4 * 2**20}),
        ({"user": "bob"}, {}),
    ]


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_line_that_excel_reads_for_itself_is_no_row(first: str, mark: str):
    text = f"{mark}{first}\r\nuser;request_percentage\r\na;x\r\n"
    assert is_csv(text)
    assert faults(text)[0].startswith("3: {user=a} request_percentage=x: ")
    assert quotas(text.replace("x", "5")) == [({"user": "a"}, {"request_percentage": 5})]


@pytest.mark.parametrize(
    ("heading", "sentences"),
    [
        ("user,key,value", ["1: the heading is user_kind,client_id_kind,ip_kind,user,client-id"]),
        ("user,client-id,ip,key,value", ["1: the heading is user_kind,client_id_kind,ip_kind"]),
        ("user,ip", ["1: the heading has no quota key, so no row would set anything"]),
        (
            "User,Client ID,Producer_Byte_Rate",
            [
                "1: Client ID is spelled client-id",
                "1: Producer_Byte_Rate is spelled producer_byte_rate",
                "1: User is spelled user",
            ],
        ),
        ("user,client_id,producer-byte-rate", ["1: client_id is spelled", "1: producer-byte-rat"]),
    ],
)
def test_a_column_that_would_be_ignored_is_refused(heading: str, sentences: list[str]):
    text = f"{heading}\nalice,etl,1\n"
    assert is_csv(text)
    found = faults(text)
    assert len(found) == len(sentences)
    assert all(map(str.startswith, found, sentences))


@pytest.mark.parametrize("cell", ["1048576", "4MiB", "80%", "1.5 GB/s", "1e6"])
def test_a_value_that_has_moved_below_a_name_is_refused(cell: str):
    assert faults(f"{SHORT}\nalice,{cell}\nbob,{cell},5\n") == [
        f"{line}: {count} cells, and the heading has 4: {cell} is in the column client-id; "
        "write empty cells, too"
        for line, count in ((2, 2), (3, 3))
    ]
    assert quotas(f"{SHORT}\nalice,{cell},5,\n7,etl\n") == [
        ({"user": "alice", "client-id": cell}, {"producer_byte_rate": 5}),
        ({"user": "7", "client-id": "etl"}, {}),
    ]


def test_a_name_is_one_cell_whatever_it_holds():
    for name in ["a\vb", "a\x85b", "a\u2028b", "a\rb", "a\nb", 'a"b', "\0", "\u202e"]:
        quoted = name.replace('"', '""')
        assert quotas(f'user,request_percentage\n"{quoted}",1\n') == [
            ({"user": name}, {"request_percentage": 1})
        ]


def test_every_fault_has_its_line_entity_and_key():
    text = f'{SHORT}\n"two\nlines",,12M,\nalice,,,1 MiB\nalice,,1,\n,,5,\nbob,,1,2,3\n'
    assert faults(text) == [
        f"2: {{user=two\\x0alines}} producer_byte_rate=12M: {UNITS} per second).",
        "4: {user=alice} request_percentage=1 MiB: the unit is %, or none.",
        "5: the entity {user=alice} is there twice (before: line 4)",
        "6: a row names a user, a client-id or an ip",
        "7: a cell stands in a column without a name",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "1: the heading names user, client-id or ip, then quota keys"),
        ("user,producer_byte_rat\na,1", "1: Unknown quota key 'producer_byte_rat'; a broker knows"),
        ("user,user,ip\na,b,c", "1: the column user is there twice"),
        ("user_kind,user,key,value\nname,a,k,1", f"1: the heading is {LONG}"),
        (f"{LONG}\nname,absent,absent,a,,,request_percentage", "2: 7 cells, and the heading has 8"),
        (f"{LONG}\nnobody,absent,absent,a,,,k,1", "2: user_kind is name, default or absent"),
        (f"{LONG}\ndefault,absent,absent,a,,,k,1", "2: user_kind is name, default or absent"),
        (f"{LONG}\nabsent,absent,absent,,,,k,1", "2: an entity has at least one type"),
        ('user,request_percentage\n"a,1', "2: this is not CSV: unexpected end of data"),
        ("user,request_percentage\na," + "1" * 200_000, "2: this is not CSV: field larger than"),
        ("user;request_percentage\na;12,5", "2: {user=a} request_percentage=12,5: a fraction"),
    ],
)
def test_what_is_no_table_is_refused(text: str, fault: str):
    assert faults(text)[0].startswith(fault)


def test_a_key_twice_is_refused_with_both_lines():
    row = "name,absent,absent,a,,,request_percentage,1\n"
    assert faults(f"{LONG}\n{row}\n{row}") == [
        "4: {user=a} request_percentage is there twice (before: line 2)"
    ]


def test_a_text_that_is_wrong_throughout_is_not_read_to_its_end():
    lines = faults("user,request_percentage\n" + "a,x\n" * 2_000_000)
    assert len(lines) == 1_000
    (heading,) = faults("user" + ",request_percentage" * 400_000 + "\n")[:1]
    assert heading == "1: the heading is too long"


def test_no_more_is_read_than_was_asked_for():
    text = "user,request_percentage\n" + "".join(f"u{number},1\n" for number in range(9))
    assert faults(text, 8) == ["10: over 8 entities; split the file"]


def test_a_pointer_has_the_line_of_its_value():
    document = read_csv(
        f"{LONG}\nname,absent,absent,a,,,k,1\nabsent,absent,name,,,b,k,1\n"
        "name,absent,absent,a,,,l/m,1\n"
    )
    assert document.line_of("/quotas/0/values/l~1m") == 4
    assert document.line_of("/quotas/1/entity/ip") == 3
    assert document.line_of("/quotas/0") == 2
    assert document.line_of("/quotas/2") is document.line_of("/owner") is None


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: quotas/v1\nquotas: []",
        '{"quotas": []}',
        '[{"user": "a"}]',
        '{"quotas": [{"entity": {"user": "a,key,b"}, "values": {"producer_byte_rate": 1}}]}',
        "# of team-a, user, key\nquotas: []",
        "quotas: [{entity: {user: 'a,user,b'}, values: {producer_byte_rate: 1}}]",
        "user",
        "",
    ],
)
def test_other_texts_are_no_tables(text: str):
    assert not is_csv(text)
