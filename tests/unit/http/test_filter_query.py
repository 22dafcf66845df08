"""The filter grammar."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import UnreadableRequestError
from app.domain.filters import (
    ALL_ENTITIES,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    MatchType,
    filter_violations,
)
from app.http.query_params import parse_component, parse_filter

NAMES = st.text(st.characters(codec="utf-8"), max_size=30)
KINDS = st.sampled_from(["user", "client-id", "ip"])


def test_each_form_of_a_component_is_read(subtests: pytest.Subtests):
    for text, match_type, match in [
        ("user=alice", MatchType.EXACT, "alice"),
        ("user=", MatchType.EXACT, ""),
        ("user=a=b:c^d", MatchType.EXACT, "a=b:c^d"),
        ("user=<default>", MatchType.EXACT, "<default>"),
        ("user=:default", MatchType.EXACT, ":default"),
        ("user:default", MatchType.DEFAULT, None),
        ("user:any", MatchType.SPECIFIED, None),
        ("user", MatchType.SPECIFIED, None),
        ("user:absent", MatchType.ABSENT, None),
        ("user^=team-a-", MatchType.PREFIX, "team-a-"),
        ("user^==", MatchType.PREFIX, "="),
        ("user^=", MatchType.PREFIX, ""),
    ]:
        with subtests.test(text=text, match=match):
            assert parse_component(text) == ClientQuotaFilterComponent("user", match_type, match)


@given(KINDS, NAMES)
def test_a_name_may_contain_anything(kind: str, name: str):
    assert parse_component(f"{kind}={name}") == ClientQuotaFilterComponent.of_entity(kind, name)
    prefix = ClientQuotaFilterComponent(kind, MatchType.PREFIX, name)
    assert parse_component(f"{kind}^={name}") == prefix


@given(NAMES)
def test_every_text_is_a_component_or_is_unreadable(text: str):
    component = parse_component(text)
    if component is not None:
        assert text.startswith(component.entity_type)
        assert not set(component.entity_type) & set("=:^")


@pytest.mark.parametrize("text", ["", "user:", "user:Default", "user:any ", "user^team", "user^"])
def test_a_component_outside_the_grammar_is_unreadable(text: str):
    with pytest.raises(UnreadableRequestError) as caught:
        parse_filter(["user=alice", text], parameter="entity")
    (violation,) = caught.value.violations
    assert (violation.pointer, violation.code) == ("entity", "unreadable-filter")


def test_every_unreadable_component_is_listed():
    with pytest.raises(UnreadableRequestError) as caught:
        parse_filter(["user:x", "", "ip^"])
    assert len(caught.value.violations) == 3


def test_no_component_is_every_entity():
    assert parse_filter([]) == ALL_ENTITIES


def test_components_keep_their_order_and_strict_is_kept():
    assert parse_filter(["client-id:default", "user=a"], strict=True) == ClientQuotaFilter(
        (
            ClientQuotaFilterComponent.of_default_entity("client-id"),
            ClientQuotaFilterComponent.of_entity("user", "a"),
        ),
        strict=True,
    )


@pytest.mark.parametrize(
    ("components", "code"),
    [
        (["=alice"], "empty-entity-type"),
        ([":default"], "empty-entity-type"),
        (["group=a"], "unknown-entity-type"),
        (["User=a"], "unknown-entity-type"),
        (["user=a", "user=b"], "repeated-entity-type"),
        (["ip", "user"], "invalid-filter-combination"),
    ],
)
def test_what_a_broker_would_refuse_can_be_read_and_is_left_to_the_rules(
    components: list[str], code: str
):
    assert [violation.code for violation in filter_violations(parse_filter(components))] == [code]
