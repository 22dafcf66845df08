"""Names of certificates, against what Java itself makes of the same bytes.

``tests/java/PrincipalVectors.java`` wrote the vectors: one file is the answer of Java 17 and 21,
one that of Java 25.
"""

import json
from pathlib import Path

import pytest
from cryptography.hazmat import asn1

from app.http.authentication.x500_names import java_subject

HERE = Path(__file__).parent
OLD = json.loads((HERE / "names_java_17.json").read_text())
NEW = json.loads((HERE / "names_java_25.json").read_text())

LOSSY = "\ufffd"
"""What Java puts instead of bytes that it cannot read."""

EMPTY_LEVEL = "an empty level"


def java_name(der: bytes) -> str:
    """Return the name of a certificate that holds nothing else."""
    fields = bytes.fromhex("020101 3000 3000 3000") + der + bytes.fromhex("3000")
    return java_subject(b"\x30" + asn1.encode_der(fields)[1:])


def test_the_vectors_are_of_the_same_names():
    assert [item["der"] for item in OLD] == [item["der"] for item in NEW]
    assert len(OLD) > 350


def test_a_name_is_as_java_writes_it_or_it_is_refused(subtests: pytest.Subtests):
    assert OLD
    for index in range(len(OLD)):
        with subtests.test(index=index):
            old, new = OLD[index], NEW[index]
            der = bytes.fromhex(old["der"])
            expected = old["name"]
            if expected == new["name"] and LOSSY not in expected and old["about"] != EMPTY_LEVEL:
                assert java_name(der) == expected, old["about"]
            else:
                with pytest.raises(ValueError, match=r"."):
                    java_name(der)


def test_so_few_are_refused():
    disagreed = sum(old["name"] != new["name"] for old, new in zip(OLD, NEW, strict=True))
    assert (disagreed, len(OLD) - disagreed) == (55, 326)


NO_NAMES = """
    30 3001 308000 30810100 300030 3100 30023000 30023100 300431023000 3006310430020603
    300b310930070603550403 300c310a300806035504030c016100 300c310a300806035504030c0261
    300c310a300806035504031f0161 300c310a300806038004030c0161 300c310a300806035504830c0161
    300a3108300606000c0161 300c310a300804035504030c0161 300c310a310806035504030c0161
    300e310c300a06035504030c01610c00 30840000000c310a300806035504030c0161
"""


def test_what_is_no_name_is_refused(subtests: pytest.Subtests):
    for der in ["", *NO_NAMES.split()]:
        with subtests.test(der=der), pytest.raises(ValueError, match=r"."):
            java_name(bytes.fromhex(der))


def test_what_has_no_subject_is_refused(subtests: pytest.Subtests):
    for tbs in ["", "3000", "3003020101", "3008a003020102020101", "0500"]:
        with subtests.test(tbs=tbs), pytest.raises(ValueError, match=r"."):
            java_subject(bytes.fromhex(tbs))
