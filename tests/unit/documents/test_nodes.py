"""YAML and JSON as nodes: what one of them allows is read, and no text ends the process."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.faults import UnreadableDocumentError
from app.documents.nodes import members_of, parse

ODD = '\x7f\x80\x85\x9f\u2028\ufeff\ufffe\uffff\U0001f600"\\/\b\f\v\0'


@pytest.mark.parametrize("ascii_only", [True, False])
@given(text=st.text(st.characters(codec="utf-8")) | st.text(ODD))
def test_every_text_of_json_is_read(text: str, *, ascii_only: bool):
    (root,) = parse(json.dumps({"a": text}, ensure_ascii=ascii_only))
    ((_, value),) = members_of(root)
    assert value.value == text


def test_a_flow_mapping_that_is_no_json_is_yaml():
    (root,) = parse("{a: ü\u00a0, 'b': \"\\x85\"}")
    assert [value.value for _, value in members_of(root)] == ["ü\u00a0", "\x85"]


@pytest.mark.parametrize("opening", ["[", "{a: ", '{"a":', "- "])
def test_a_text_that_is_nested_too_deeply_is_refused(opening: str):
    with pytest.raises(UnreadableDocumentError) as refused:
        parse(opening * 1_000_000)
    assert "over 100 mappings and lists are nested" in str(refused.value)


def test_an_alias_is_refused_in_its_own_line():
    with pytest.raises(UnreadableDocumentError) as refused:
        parse("a: &x\n  b: 1\nc: *x\nd: *x\n")
    assert [fault.line for fault in refused.value.faults] == [3, 4]


def test_no_more_nodes_are_read_than_were_asked_for():
    with pytest.raises(UnreadableDocumentError, match="line 3: the document is too large"):
        parse("- 1\n- 2\n- 3\n", 3)
