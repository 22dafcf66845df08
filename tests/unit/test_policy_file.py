"""The policy file is read strictly: every fault has its line, and nothing is guessed."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from app.domain.authorization import KeyLimits
from app.domain.budgets import Budget
from app.domain.entities import MatchType
from app.policy_file import MAX_BYTES, PolicyFileError, parse_policy, read_policy

GOOD = """\
apiVersion: quotas-policy/v1
rules:
  - name: team-a
    principals: ["User:ci-a", "User:CN=ci, O=Example"]
    entities:
      - user^=team-a-
      - [user^=team-a-, "client-id:any"]
    keys:
      producer_byte_rate: {min: 1024, max: 9223372036854775807, remove: true}
      "*": {}
"""

KEY = "rules.0.keys.producer_byte_rate"

RULE = GOOD.replace("apiVersion: quotas-policy/v1\nrules:\n", "")


def faults(text: str | bytes) -> list[str]:
    content = text.encode() if isinstance(text, str) else text
    with pytest.raises(PolicyFileError) as caught:
        parse_policy(content, "p")
    return [line.removeprefix("p, ") for line in str(caught.value).splitlines()]


def test_a_file_is_read():
    policy = parse_policy(GOOD.encode(), "p")
    (rule,) = policy.rules
    assert not policy.others_may
    assert rule.principals == {"User:ci-a", "User:CN=ci, O=Example"}
    assert [len(entity.components) for entity in rule.entities] == [1, 2]
    assert all(entity.strict for entity in rule.entities)
    assert rule.entities[0].components[0].match_type is MatchType.PREFIX
    unlimited = KeyLimits(Decimal(1024), Decimal(2**63), remove=True)
    assert rule.keys == {"producer_byte_rate": unlimited, "*": KeyLimits()}
    assert not rule.defaults


def test_a_rule_may_bound_what_is_for_a_time():
    times = "    max_duration: 8h\n    temporary_above: {producer_byte_rate: 1024}\n"
    (rule,) = parse_policy(f"{GOOD}{times}".encode(), "p").rules
    assert rule.max_duration == timedelta(hours=8)
    assert rule.temporary_above == {"producer_byte_rate": Decimal(1024)}
    wrong = "    max_duration: 8\n    temporary_above: {'*': 1, producer_byte_rate: x}\n"
    first, *others = faults(f"{GOOD}{wrong}")
    assert first.endswith("not a duration such as 90s, 30m, 4h or 2d.")
    assert len(others) == 2


def test_others_may_be_left_to_the_acls():
    policy = parse_policy(f"others: allow\n{GOOD}".encode(), "p")
    assert policy.others_may


WHOLE = [
    ("", "line 1: the file is empty; it needs apiVersion and rules."),
    ("# nothing\n", "line 1: the file is empty; it needs apiVersion and rules."),
    ("rules: [", "line 1: not YAML: expected the node content, but found '<stream end>'."),
    ("[" * 5000 + "]" * 5000, "line 1: nested too deeply."),
    ("[" * 21 + "]" * 21, "line 1: nested too deeply."),
    (b"\xff", "line 1: not YAML in UTF-8."),
    ("a: 1\nb: &x 1\nc: *x\n", "line 2: anchors and aliases are not read here; write it out."),
    ("&x a: 1\nb: *x\n", "line 1: anchors and aliases are not read here; write it out."),
    ("a: &x b\n*x : 1\n", "line 1: a key is a plain text."),
    ("--- a\n--- b\n", "line 2: not YAML: but found another document."),
    ("[1]", "line 1: the file: Input should be a valid dictionary"),
    (f"{GOOD}others: perhaps\n", "line 11: others: Input should be 'deny' or 'allow'."),
    (f"{GOOD}others: yes\n", "line 11: others: Input should be 'deny' or 'allow'."),
    (f"{GOOD}rules: []\n", "line 11: 'rules' is there twice."),
    (f"{GOOD}more: 1\n", "line 11: more: Extra inputs are not permitted."),
    (f"{GOOD}{RULE}", "line 3: rules: two rules have the name 'team-a'."),
    ("apiVersion: quotas-policy/v1\nrules: {}\n", "line 2: rules: Input should be a valid list."),
]
"""Files, and how the report of a fault in each begins."""

_NO_TYPE = "a pattern that names no type matches nothing."

CHANGES = [
    ("quotas-policy/v1", "quotas/v1", "line 1: apiVersion: Input should be 'quotas-p"),
    ("    principals", "    principal", "line 3: rules.0.principals: Field required."),
    ("User:ci-a", "ci-a", "line 4: rules.0.principals.0: 'ci-a' is not a pri"),
    ('"User:ci-a"', "17", "line 4: rules.0.principals.0: Input should be a valid string."),
    ("- user^=team-a-", "- user!", "line 6: rules.0.entities.0: Unknown entity type 'user!'; "),
    ("- user^=team-a-", "- user:none", "line 6: rules.0.entities.0.0: 'user:none' is no pattern. "),
    ("- user^=team-a-", "- user:default", "line 6: rules.0.entities.0: a default entity needs "),
    ("client-id:any", "ip:any", "line 7: rules.0.entities.1: ip cannot be"),
    ("client-id:any", "user:any", "line 7: rules.0.entities.1: The entity "),
    *(
        ("- user^=team-a-", f"- {pattern}", f"line 6: rules.0.entities.0: {_NO_TYPE}")
        for pattern in ("[]", "any~=team", "[user:absent]")
    ),
    ("1024", "1_024", f"line 9: {KEY}.min: "),
    ("1024", "0", f"line 9: {KEY}.min: '0' is not a number over 0"),
    ("1024", "-1", f"line 9: {KEY}.min: '-1' is not a number over 0"),
    ("1024", ".inf", f"line 9: {KEY}.min: "),
    ("1024", '"1024"', f"line 9: {KEY}.min: "),
    ("1024", "9223372036854775808", f"line 9: {KEY}.max: min is over max."),
    ("remove: true", "remove: yes", f"line 9: {KEY}.remove: Input should be a valid boolean."),
    ("remove: true", "removes: true", f"line 9: {KEY}.removes: Extra inputs are not "),
    ("producer_byte_rate", "rate", "line 9: rules.0.keys.rate: 'rate' is unknown"),
    ("producer_byte_rate", '""', "line 9: rules.0.keys.: '' is unknown here"),
    ("max: 9223372036854775807", "max: [1]", f"line 9: {KEY}.max: a list is not a number over 0"),
    ('"*": {}', '"*": 5', "line 10: rules.0.keys.*: Input should be a valid dictionary"),
]
"""What is written instead of what in the good file."""


def test_a_fault_is_reported_with_its_line(subtests: pytest.Subtests):
    changed = [(GOOD.replace(old, new), expected) for old, new, expected in CHANGES]
    for text, expected in [*WHOLE, *changed]:
        with subtests.test(text=text, expected=expected):
            assert text != GOOD
            reported = faults(text)
            assert any(line.startswith(expected) for line in reported), reported


def test_all_faults_are_reported_at_once():
    text = GOOD.replace("User:ci-a", "ci-a").replace("remove: true", "remove: 1")
    assert len(faults(f"{text}more: 1\n")) == 3


def test_a_file_that_is_missing_or_too_large_is_named(tmp_path: Path):
    with pytest.raises(PolicyFileError, match=r"none\.yaml cannot be read: No such file"):
        read_policy(tmp_path / "none.yaml")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(PolicyFileError, match="has over 1048576 bytes"):
        read_policy(large)


def test_the_digest_is_that_of_the_file(tmp_path: Path):
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD, encoding="utf-8")
    first = read_policy(path).digest
    path.write_text(GOOD + "# again\n", encoding="utf-8")
    assert len(first) == 64
    assert read_policy(path).digest != first


BUDGETS = """\
apiVersion: quotas-policy/v1
budgets:
  - name: team-a
    users: "team-a-"
    limits: {producer_byte_rate: 500MB, request_percentage: 80%}
    overbooking: 1.5
  - name: two
    users: [x, "y"]
    client-ids: ""
    limits:
      consumer_byte_rate: 1048576
"""


def test_budgets_are_read_with_units_and_alone_they_leave_the_rest_to_the_acls():
    policy = parse_policy(BUDGETS.encode(), "p")
    assert policy.others_may
    assert policy.budgets == (
        Budget(
            "team-a",
            {"producer_byte_rate": Decimal(500_000_000), "request_percentage": Decimal(80)},
            "team-a-",
            overbooking=Decimal("1.5"),
        ),
        Budget("two", {"consumer_byte_rate": Decimal(1048576)}, frozenset({"x", "y"}), ""),
    )
    both = parse_policy(f"{BUDGETS}rules:\n{RULE}".encode(), "p")
    assert (len(both.rules), len(both.budgets), both.others_may) == (1, 2, False)
    assert not parse_policy(f"{BUDGETS}others: deny\n".encode(), "p").others_may


LIMITS = "budgets.0.limits"
WRONG_BUDGETS = [
    ("name: two", "name: team-a", "line 3: budgets: two budgets have the name 'team-a'."),
    ("users: [x,", "user: [x,", "line 8: budgets.1.user: Extra inputs are not permitted."),
    ('"team-a-"', "5", "line 4: budgets.0.users: '5' is neither a prefix in quotes nor a list"),
    ('"team-a-"', "{a: b}", "line 4: budgets.0.users: a mapping is neither a prefix in quotes"),
    ('"team-a-"', r'"\ud800"', "line 4: budgets.0.users: '\\ud800' is no name of a user"),
    ('"team-a-"', f'"{"x" * 513}"', "line 4: budgets.0.users: 'xxxxx"),
    ('[x, "y"]', "[]", "line 8: budgets.1.users: a list has at least one name, and each once."),
    ('[x, "y"]', "[x, x]", "line 8: budgets.1.users: a list has at least one name, and each once."),
    ('[x, "y"]', '[""]', "line 8: budgets.1.users: a list has at least one name, and each once."),
    ('    users: "team-a-"\n', "", "line 3: budgets.0: a budget needs users or client-ids."),
    ("500MB", "5 apples", f"line 5: {LIMITS}.producer_byte_rate: producer_byte_rate=5 apples: un"),
    ("500MB", "80%", f"line 5: {LIMITS}.producer_byte_rate: producer_byte_rate=80%: units of a"),
    ("500MB", "unlimited", f"line 5: {LIMITS}.producer_byte_rate: what is unlimited needs no bu"),
    ("500MB", "unset", f"line 5: {LIMITS}.producer_byte_rate: 'unset' is not a number over 0"),
    ("500MB", "NaN", f"line 5: {LIMITS}.producer_byte_rate: 'nan' is not a number over 0"),
    ("500MB", "0", f"line 5: {LIMITS}.producer_byte_rate: '0' is not a number over 0"),
    ("500MB", "-5MB", f"line 5: {LIMITS}.producer_byte_rate: '-5000000' is not a number over 0"),
    ("producer_byte_rate", "rate", f"line 5: {LIMITS}.rate: Extra inputs are not permitted."),
    (
        "producer_byte_rate: 500MB",
        "connection_creation_rate: 5",
        f"line 5: {LIMITS}.connection_creation_rate: Extra inputs are not permitted.",
    ),
    (
        "{producer_byte_rate: 500MB, request_percentage: 80%}",
        "{}",
        f"line 5: {LIMITS}: a budget limits one at least of producer_byte_rate, ",
    ),
    ("overbooking: 1.5", "overbooking: 0", "line 6: budgets.0.overbooking: '0' is not a number"),
    ("overbooking: 1.5", "booking: 1", "line 6: budgets.0.booking: Extra inputs are not permitted"),
]


def test_a_fault_of_a_budget_is_reported_with_its_line(subtests: pytest.Subtests):
    for old, new, expected in WRONG_BUDGETS:
        with subtests.test(new=new, expected=expected):
            assert old in BUDGETS
            reported = faults(BUDGETS.replace(old, new, 1))
            assert any(line.startswith(expected) for line in reported), reported


@pytest.mark.parametrize("text", ["", "others: allow\n", "budgets: []\n"])
def test_a_file_needs_rules_or_budgets(text: str):
    found = faults(f"apiVersion: quotas-policy/v1\n{text}")
    assert found == ["line 1: the file: it needs rules, or budgets."]


def test_what_a_callback_ignores_is_refused_only_where_the_file_says_so():
    assert not parse_policy(GOOD.encode(), "p").refuses_ignored
    alone = parse_policy(b"apiVersion: quotas-policy/v1\nignored_by_callback: deny\n", "p")
    assert (alone.refuses_ignored, alone.others_may) == (True, True)


def test_drastic_changes_are_refused_only_where_the_file_says_so():
    assert not parse_policy(GOOD.encode(), "p").refuses_drastic
    alone = parse_policy(b"apiVersion: quotas-policy/v1\ndrastic: deny\n", "p")
    assert (alone.refuses_drastic, alone.refuses_ignored, alone.others_may) == (True, False, True)
