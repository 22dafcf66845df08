"""Bodies of the wrong shape: refused with their pointer, before anything is sent."""

from typing import Any

import pytest

from tests.integration.http.bad_input.conftest import Post
from tests.testkit.http import Violations, assert_refused, problem_of

OP = '{"key": "producer_byte_rate", "value": 1}'
ALTERATION = f'{{"entity": {{"user": "bad"}}, "ops": [{OP}]}}'
BODY = f'{{"alterations": [{ALTERATION}]}}'
OPS = "/alterations/0/ops/0"


UNREADABLE: dict[str, tuple[str | bytes, Violations]] = {
    "nothing": ("", {("", "not-json")}),
    "blanks": (" \r\n\t", {("", "not-json")}),
    "half of it": (BODY[:-1], {("", "not-json")}),
    "trailing bytes": (f"{BODY}}}", {("", "not-json")}),
    "two bodies": (f"{BODY}\n{BODY}", {("", "not-json")}),
    "a NUL behind it": (f"{BODY}\0", {("", "not-json")}),
    "a trailing comma": (BODY.replace("]}", "],}"), {("", "not-json")}),
    "a comment": (f"/* */{BODY}", {("", "not-json")}),
    "single quotes": (BODY.replace('"', "'"), {("", "not-json")}),
    "a raw line break in a name": (BODY.replace("bad", "b\nd"), {("", "not-json")}),
    "an unknown escape": (BODY.replace("bad", r"b\xd"), {("", "not-json")}),
    "half an escape": (BODY.replace("bad", r"b\ud8"), {("", "not-json")}),
    "a form": ("alterations=1", {("", "not-json")}),
    "YAML": ("alterations: []", {("", "not-json")}),
    "a byte order mark": (b"\xef\xbb\xbf" + BODY.encode(), {("", "not-json")}),
    "UTF-16": (BODY.encode("utf-16"), {("", "not-utf-8")}),
    "UTF-16 without a mark": (BODY.encode("utf-16-le"), {("", "not-json")}),
    "UTF-32": (BODY.encode("utf-32"), {("", "not-utf-8")}),
    "Latin-1": (BODY.replace("bad", "b\xe9d").encode("latin-1"), {("", "not-utf-8")}),
    "UTF-8 that is too long": (BODY.encode().replace(b"bad", b"b\xc0\xafd"), {("", "not-utf-8")}),
    "a surrogate in UTF-8": (BODY.encode().replace(b"bad", b"b\xed\xa0\x80d"), {("", "not-utf-8")}),
    "a text": ('"alterations"', {("", "wrong-type")}),
    "a number": ("1", {("", "wrong-type")}),
    "null": ("null", {("", "wrong-type")}),
    "true": ("true", {("", "wrong-type")}),
    "an array": (f"[{ALTERATION}]", {("", "wrong-type")}),
    "100,000 arrays": ("[" * 100_000, {("", "nested-too-deeply")}),
    "100,000 arrays that end": ("[" * 100_000 + "]" * 100_000, {("", "nested-too-deeply")}),
    "100,000 objects": ('{"a":' * 100_000, {("", "nested-too-deeply")}),
    "nesting inside a member": (
        BODY.replace("1}", f"{'[' * 100_000}{']' * 100_000}}}"),
        {("", "nested-too-deeply")},
    ),
    "alterations twice": (
        f'{{"alterations": [], "alterations": [{ALTERATION}]}}',
        {("/alterations", "duplicate-json-key")},
    ),
    "alterations twice, once escaped": (
        f'{{"\\u0061lterations": [], "alterations": [{ALTERATION}]}}',
        {("/alterations", "duplicate-json-key")},
    ),
    "the entity twice": (
        BODY.replace('"ops"', '"entity": {"user": "worse"}, "ops"'),
        {("/alterations/0/entity", "duplicate-json-key")},
    ),
    "the user twice": (
        BODY.replace('"bad"', '"bad", "user": "bad"'),
        {("/alterations/0/entity/user", "duplicate-json-key")},
    ),
    "the value twice": (
        BODY.replace("1}", '1, "value": 2}'),
        {(f"{OPS}/value", "duplicate-json-key")},
    ),
    "a key of expected twice": (
        BODY.replace('"ops"', '"expected": {"a": 1, "a": 1}, "ops"'),
        {("/alterations/0/expected/a", "duplicate-json-key")},
    ),
    "something twice in a field that is unknown": (
        BODY.replace("{", '{"x": {"y": 1, "y": 2}, ', 1),
        {("/x/y", "duplicate-json-key")},
    ),
    "a misspelt value": (BODY.replace("value", "valu"), {(f"{OPS}/valu", "unknown-field")}),
    "a misspelt removal": (
        BODY.replace('"value": 1', '"removed": true'),
        {(f"{OPS}/removed", "unknown-field")},
    ),
    "another case": (BODY.replace("value", "Value"), {(f"{OPS}/Value", "unknown-field")}),
    "an unknown field of an alteration": (
        BODY.replace('"ops"', '"quota": 1, "ops"'),
        {("/alterations/0/quota", "unknown-field")},
    ),
    "an unknown field of the body": (
        BODY.replace("{", '{"validateOnly": true, ', 1),
        {("/validateOnly", "unknown-field")},
    ),
    "no entity": ('{"alterations": [{"ops": []}]}', {("/alterations/0/entity", "missing-field")}),
    "no ops": (
        '{"alterations": [{"entity": {"user": "bad"}}]}',
        {("/alterations/0/ops", "missing-field")},
    ),
    "no key": (
        BODY.replace('"key": "producer_byte_rate", ', ""),
        {(f"{OPS}/key", "missing-field")},
    ),
    "everything at once": (
        '{"x": 1, "validate_only": 1, "alterations": [1, {"entity": [], "ops": [{}, null]}]}',
        {
            ("/x", "unknown-field"),
            ("/validate_only", "wrong-type"),
            ("/alterations/0", "wrong-type"),
            ("/alterations/1/entity", "wrong-type"),
            ("/alterations/1/ops/0/key", "missing-field"),
            ("/alterations/1/ops/1", "wrong-type"),
        },
    ),
}


def test_a_body_that_cannot_be_read_is_refused(post: Post, subtests: pytest.Subtests) -> None:
    for name, (body, violations) in UNREADABLE.items():
        with subtests.test(name=name):
            problem = assert_refused(post(body), 400, violations)
            assert (problem["code"], problem["kafka_error"]) == ("unreadable-request", None)


def test_a_what_if_that_cannot_be_read_is_refused(post: Post, subtests: pytest.Subtests) -> None:
    for name, (body, _) in UNREADABLE.items():
        with subtests.test(name=name):
            problem_of(post(body, path="/quotas/resolve"), 400)


WRONG_TYPES: dict[str, tuple[dict[str, Any], str]] = {
    "alterations as an object": ({"alterations": {}}, "/alterations"),
    "alterations as null": ({"alterations": None}, "/alterations"),
    "an alteration as an array": ({"alterations": [[]]}, "/alterations/0"),
    "an alteration as null": ({"alterations": [None]}, "/alterations/0"),
    "validate_only as text": ({"validate_only": "true"}, "/validate_only"),
    "validate_only as null": ({"validate_only": None}, "/validate_only"),
    "all_or_nothing as a number": ({"all_or_nothing": 0}, "/all_or_nothing"),
    "wait as true": ({"wait": True}, "/wait"),
    "wait_ms as text": ({"wait_ms": "5"}, "/wait_ms"),
    "wait_ms as true": ({"wait_ms": True}, "/wait_ms"),
    "a reason as a number": ({"reason": 4711}, "/reason"),
    "a reason as an array": ({"reason": ["x"]}, "/reason"),
}


def test_a_field_of_another_type_is_refused(post: Post, subtests: pytest.Subtests) -> None:
    for name, (fields, pointer) in WRONG_TYPES.items():
        with subtests.test(name=name):
            assert_refused(post({"alterations": [], **fields}), 400, {(pointer, "wrong-type")})


def alteration(**fields: Any) -> dict[str, Any]:
    op = {"key": "producer_byte_rate", "value": 1}
    return {"alterations": [{"entity": {"user": "bad"}, "ops": [op], **fields}]}


MEMBERS: dict[str, tuple[dict[str, Any], str]] = {
    "the entity as text": ({"entity": "user=bad"}, "entity"),
    "the entity as an array": ({"entity": [{"user": "bad"}]}, "entity"),
    "the entity as null": ({"entity": None}, "entity"),
    "ops as an object": ({"ops": {"producer_byte_rate": 1}}, "ops"),
    "ops as null": ({"ops": None}, "ops"),
    "an op as text": ({"ops": ["producer_byte_rate=1"]}, "ops/0"),
    "a key as a number": ({"ops": [{"key": 1, "value": 1}]}, "ops/0/key"),
    "a key as null": ({"ops": [{"key": None, "value": 1}]}, "ops/0/key"),
    "remove as text": ({"ops": [{"key": "k", "remove": "true"}]}, "ops/0/remove"),
    "remove as a number": ({"ops": [{"key": "k", "remove": 1}]}, "ops/0/remove"),
    "remove as null": ({"ops": [{"key": "k", "remove": None}]}, "ops/0/remove"),
    "expected as an array": ({"expected": []}, "expected"),
    "expected as null": ({"expected": None}, "expected"),
    "an expected text": ({"expected": {"k": "1"}}, "expected/k"),
    "an expected truth": ({"expected": {"k": True}}, "expected/k"),
}


def test_a_member_of_an_alteration_of_another_type_is_refused(
    post: Post, subtests: pytest.Subtests
) -> None:
    for name, (fields, pointer) in MEMBERS.items():
        with subtests.test(name=name):
            assert_refused(
                post(alteration(**fields)), 400, {(f"/alterations/0/{pointer}", "wrong-type")}
            )
