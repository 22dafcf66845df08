"""From a certificate's bytes to a user: names as Java writes them, and Kafka's mapping rules.

``tests/java/PrincipalVectors.java`` wrote the vectors. Of names, one file is the answer of Java 17
and 21, one that of Java 25. Of Kafka's own ``SslPrincipalMapper``, ``fault`` is ``rules`` where
Kafka does not start with them, ``no rule`` where none fits the name.
"""

import json
from pathlib import Path

import pytest
from cryptography.hazmat import asn1

from app.http.authentication.certificates import java_subject
from app.http.authentication.principal_mapping import (
    JavaPatternError,
    PrincipalMapping,
    compile_java,
)

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


VECTORS = json.loads((HERE / "mappings.json").read_text())

JAVA_ALONE = {
    r"RULE:^CN=(?<who>.*?),.*$/${who}/",
    r"RULE:^CN=[a-z&&[^x]]+,.*$/x/",
    r"RULE:^CN=\p{L}+,.*$/x/",
    r"RULE:(?<=x)/y/",
    r"RULE:\2(x)/y/",
}
"""Rules that Kafka takes and this service refuses at its start, saying why."""

NOBODY = {"", ","}
"""Rules that fit no name at all, with which a broker lets nobody in."""

FAILING = {item["rules"] for item in VECTORS if item["fault"] not in {None, "no rule"}}
"""Rules that Kafka refuses, or that fail for every name that they fit."""

FITTING = [item for item in VECTORS if item["rules"] not in JAVA_ALONE | NOBODY | FAILING]


def test_there_are_many():
    assert (len(VECTORS), len(FITTING)) == (331, 197)


def test_a_name_becomes_what_kafka_makes_of_it(subtests: pytest.Subtests):
    assert FITTING
    for vector in FITTING:
        with subtests.test(vector=vector):
            assert PrincipalMapping(vector["rules"]).user_name(vector["name"]) == vector["result"]


def test_rules_that_could_mean_something_else_are_refused(subtests: pytest.Subtests):
    for rules in sorted(JAVA_ALONE | NOBODY | FAILING):
        with subtests.test(rules=rules), pytest.raises(ValueError, match=r"."):
            PrincipalMapping(rules)


def test_no_rule_fits_a_name_of_several_lines():
    mapping = PrincipalMapping("RULE:^CN=.*$/admin/,DEFAULT")
    assert mapping.user_name("CN=a b") == "admin"
    for end in "\n\r\x85\u2028\u2029":
        assert mapping.user_name(f"CN=a{end}b") is None


def test_rules_of_several_lines_are_refused():
    with pytest.raises(ValueError, match="control characters"):
        PrincipalMapping("DEFAULT,\nDEFAULT")


NOT_TAKEN = r"""
    \bx \Qx\E \x41 \0101 \1(x) \A \z x(?i)y (?m)x (?>x) (?P<n>x) (?#x) (?<!x)y [[a]b] []a]
    [a&&b] [a [\b] [a-\d] x\ x{2 x{99999} x{,3} (x x) +x x+++
"""


def test_a_pattern_that_python_could_misunderstand_is_refused(subtests: pytest.Subtests):
    for pattern in [*NOT_TAKEN.split(), r"(?x) x"]:
        with subtests.test(pattern=pattern), pytest.raises(JavaPatternError):
            compile_java(pattern)


def test_a_pattern_means_what_it_means_to_java(subtests: pytest.Subtests):
    for pattern, text, fits in [
        (r"a#b c", "a#b c", True),
        (r"\w+", "\u00e9", False),
        (r"\d", "\u0663", False),
        (r"(?i)k", "\u212a", False),
        (r"(?i)k", "K", True),
        (r"[a\]b]+", "a]b", True),
        (r"[a^-]+", "a^-", True),
        (r"[^\w,]", "!", True),
        (r"a\-b\/c\ d", "a-b/c d", True),
        (r"^a|b$", "b", True),
        (r"a{2}b{1,}c{0,2}", "aabcc", True),
        (r"[a--]", "-", None),
    ]:
        with subtests.test(pattern=pattern, text=text):
            if fits is None:
                with pytest.raises(JavaPatternError):
                    compile_java(pattern)
            else:
                assert (compile_java(pattern).fullmatch(text) is not None) is fits
