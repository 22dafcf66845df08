"""What kafka-configs prints is read as people copy it, and no secret of it is printed."""

from pathlib import Path

import pytest

from app.client.cli import main
from app.client.documents import read_document
from tests.unit.client.imports.conftest import C, I, P, R, imported

KAFKA_CONFIGS = """\
Quota configs for user-principal 'alice' are producer_byte_rate=1024.0, request_percentage=12.5
Quota configs for user-principal 'CN=o'brien, client-id 'app', OU=x' are producer_byte_rate=1.0E7
Quota configs for user-principal 'alice', client-id 'what are you' are consumer_byte_rate=2.0
Quota configs for the default user-principal, client-id 'app' are consumer_byte_rate=3.0
Quota configs for user-principal 'alice', the default client-id are consumer_byte_rate=4.0
Quota configs for the default user-principal, the default client-id are consumer_byte_rate=5.0
Quota configs for the default user-principal are producer_byte_rate=9.223372036854776E18
Quota configs for client-id 'etl' are request_percentage=NaN, producer_byte_rate=6.0
Quota configs for the default ip are connection_creation_rate=7.0
Quota configs for ip '1.2.3.4' are connection_creation_rate=8.0
Configs for default client-id are producer_byte_rate=1024,consumer_byte_rate=2048
Configs for user-principal 'old' are SCRAM-SHA-256=salt=c2Vj,stored_key=cmV0,iterations=4096,request_percentage=9
SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=4096
Dynamic configs for topic t are:
"""  # noqa: E501


def test_every_line_is_read_reported_or_counted(tmp_path: Path):
    quotas, lost, _, others = imported(tmp_path, KAFKA_CONFIGS)
    assert quotas == [
        ({"ip": None}, {I: 7}),
        ({"ip": "1.2.3.4"}, {I: 8}),
        ({"client-id": None}, {P: 1024, C: 2048}),
        ({"client-id": "etl"}, {P: 6}),
        ({"user": None}, {P: 9223372036854775807}),
        ({"client-id": None, "user": None}, {C: 5}),
        ({"client-id": "app", "user": None}, {C: 3}),
        ({"user": "CN=o'brien, client-id 'app', OU=x"}, {P: 10000000}),
        ({"user": "alice"}, {P: 1024, R: 12.5}),
        ({"client-id": None, "user": "alice"}, {C: 4}),
        ({"client-id": "what are you", "user": "alice"}, {C: 2}),
        ({"user": "old"}, {R: 9}),
    ]
    assert lost == ["8: {client-id=etl} request_percentage=NaN: not a number over 0"]
    assert others == {"SCRAM credential": 2, "other line": 1}


def test_two_values_for_one_key_are_reported_and_the_first_is_used(tmp_path: Path):
    line = "Quota configs for client-id 'etl' are producer_byte_rate="
    quotas, lost, _, _ = imported(tmp_path, f"{line}6.0\n{line}6.0\n{line}7.0\n")
    assert quotas == [({"client-id": "etl"}, {P: 6})]
    assert lost == ["3: {client-id=etl} producer_byte_rate=7: it was 6 before, which stays"]


def test_no_secret_is_printed_and_the_document_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file, document = tmp_path / "foreign", tmp_path / "document"
    file.write_text(KAFKA_CONFIGS)
    assert main(["import", str(file), "--complete"]) == 1
    printed = capsys.readouterr()
    assert not {"c2Vj", "cmV0"} & {*printed.out.split("="), *printed.err.split("=")}
    document.write_text(printed.out)
    assert len(read_document(str(document)).document.quotas) == 12


@pytest.mark.parametrize(
    "lines",
    [
        "Quota configs for client-id 'job' are\n  consumer_byte_rate=2.0, producer_byte_rate=1.0",
        "Quota configs for client-id 'job' are consumer_byte_rate=2.0,\nproducer_byte_rate=1.0\n",
        "Quota configs for client-id\n 'job' are consumer_byte_rate=2.0, producer_byte_rate=1.0",
        "  Quota configs for client-id 'job' are consumer_byte_rate=2.0, producer_byte_rate=1.0",
        "> Quota configs for client-id 'job' are consumer_byte_rate=2.0,\n> producer_byte_rate=1.0",
        "$ Quota configs for client-id 'job' are consumer_byte_rate=2.0, producer_byte_rate=1.0",
        "Quota configs for client-id 'job' are consumer_byte_rate=2.0, producer_by\nte_rate=1.0",
        "Quota configs for client-id 'job' are consumer_byte_rate=2\n.0, producer_byte_rate=1.0",
        "Quota configs for client-id 'job' are consumer_byte_rate=2.0\n, producer_byte_rate=1.0",
        "Quota configs for clie\nnt-id 'job' are consumer_byte_rate=2.0, producer_byte_rate=1.0",
        (
            "all.txt:12:Quota configs for client-id 'job' are consumer_byte_rate=2.0, "
            "producer_byte_rate=1.0"
        ),
        (
            "2026-11-01T10:00:00.123456789Z Quota configs for client-id 'job' are "
            "consumer_byte_rate=2.0, producer_byte_rate=1.0"
        ),
        (
            "kafka-1  | Quota configs for client-id 'job' are consumer_byte_rate=2.0, "
            "producer_byte_rate=1.0\r\n"
        ),
        (
            "\x1b[32mQuota configs for client-id 'job' are consumer_byte_rate=2.0,\x1b[0m "
            "producer_byte_rate=1.0"
        ),
    ],
)
def test_wrapped_indented_and_prompted_lines_are_read(tmp_path: Path, lines: str):
    read = imported(tmp_path, f"$ kafka-configs --describe\n{lines}\n\n$\n")
    assert read.quotas == [({"client-id": "job"}, {C: 2, P: 1})]
    assert read.lost == []


@pytest.mark.parametrize(
    "lines",
    [
        "Quota configs for user-principal 'CN=alice,OU=data, O=Ac\nme' are producer_byte_rate=1.0",
        "Quota configs for user-principal 'a', client-id 'e\ntl' are producer_byte_rate=1.0",
        "Quota configs for user-principal 'a' are producer_byte_rate=1.0\n48576E7",
        "Quota configs for user-principal 'a' are producer_byte_rate=1.0E7\n0",
        "Configs for user-principal 'a' are producer_byte_rate=1048\n576",
        (
            "Quota configs for user-principal 'a\nb' are producer_byte_rate=1.0,\n"
            "request_percentage=5.\n0"
        ),
    ],
)
def test_a_name_or_number_that_may_be_cut_by_the_end_of_a_line_is_lost(tmp_path: Path, lines: str):
    first = "Quota configs for user-principal 'b' are producer_byte_rate=1.0\n"
    read = imported(tmp_path, f"{first}{lines}\n$ \n")
    assert read.quotas == [({"user": "b"}, {P: 1})]
    (loss,) = read.lost
    assert loss.startswith(f"2: a line with {P}")
    assert loss.endswith(": it ends within a name or a number: join it with the next")


def test_a_line_that_is_no_number_does_not_continue_a_number(tmp_path: Path):
    line = "Quota configs for user-principal 'a' are producer_byte_rate=1.0"
    for after in ("done", "$ ls", "producer", "5 lines"):
        read = imported(tmp_path, f"{line}\n{after}\n")
        assert (read.quotas, read.lost) == ([({"user": "a"}, {P: 1})], [])


def test_a_line_after_an_entity_without_values_is_a_line_of_its_own(tmp_path: Path):
    read = imported(
        tmp_path,
        "Quota configs for user-principal 'a' are \n"
        "Quota configs for user-principal 'b' are producer_byte_rate=1.0\n",
    )
    assert read.quotas == [({"user": "b"}, {P: 1})]
    assert read.others == {"entity without values": 1}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[INFO] Quota configs for ip 'a' are producer_byte_rate=1.0", "a line with {P}: not read"),
        ("Quota configs for team 'a' are producer_byte_rate=1.0", "team 'a' {P}: Kafka has no"),
        (
            "Quota configs for client-id 'a' are producer_byte_rate=",
            "{{client-id=a}} {P}: not read",
        ),
        (
            "Quota configs for client-id 'a' are producer_byte_rate 5",
            "{{client-id=a}} a value: not",
        ),
        ("Quota configs for client-id 'a'", "a line of quotas: not read"),
        ("Quota configs for ip 'a' are producer_byte_rate=1.0", "{{ip=a}} {P}=1.0: not a key of"),
        ("Quota configs for client-id 'a' are password=x", "{{client-id=a}} password: not a quota"),
    ],
)
def test_a_line_that_is_not_understood_is_lost_with_its_line(
    tmp_path: Path, line: str, sentence: str
):
    first = "Quota configs for user-principal 'b' are producer_byte_rate=1.0\n"
    (loss,) = imported(tmp_path, f"{first}{line}\n").lost
    assert loss.startswith(f"2: {sentence.format(P=P)}")


def test_what_is_no_quota_key_is_not_repeated(tmp_path: Path):
    secret = "hunter2"
    lines = (
        f"Quota configs for client-id 'a' are password={secret}\n"
        f"Configs for user-principal 'b' are SCRAM-SHA-256=salt=x,\nstored_key={secret}==, "
        f"producer_byte_rate=5\npassword {secret} producer_byte_rate=5\n"
    )
    read = imported(tmp_path, lines)
    assert secret not in str(read)
    assert [sentence.partition(":")[0] for sentence in read.lost] == ["1", "3", "4"]
