"""Mapping rules, against Kafka's own ``SslPrincipalMapper``.

``tests/java/PrincipalVectors.java`` wrote the vectors: ``fault`` is ``rules`` where Kafka does not
start with them, ``no rule`` where none fits the name.
"""

import json
from pathlib import Path

import pytest

from app.http.authentication.principal_mapping import (
    JavaPatternError,
    PrincipalMapping,
    compile_java,
)

VECTORS = json.loads((Path(__file__).parent / "mappings.json").read_text())

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
