"""Entity tags and ``If-None-Match``."""

import pytest

from app.domain.entities import ClientQuotaEntity
from app.http.etags import if_none_match, quotas_etag
from app.http.formats import Format

ENTRIES = [(ClientQuotaEntity.of({"user": "alice"}), {"producer_byte_rate": 1.0})]
TAG = quotas_etag(Format.JSON, "c1", ENTRIES)


def test_the_same_answer_has_the_same_strong_tag():
    assert quotas_etag(Format.JSON, "c1", iter(ENTRIES)) == TAG
    assert TAG.startswith('"')


@pytest.mark.parametrize(
    "other",
    [
        quotas_etag(Format.CSV, "c1", ENTRIES),
        quotas_etag(Format.JSON, "c2", ENTRIES),
        quotas_etag(Format.JSON, "c1", ENTRIES, page="10:0"),
        quotas_etag(Format.JSON, "c1", []),
        quotas_etag(Format.JSON, "c1", ENTRIES * 2),
        quotas_etag(Format.JSON, "c1", [(ENTRIES[0][0], {"producer_byte_rate": 2.0})]),
        quotas_etag(Format.JSON, "c1", [(ENTRIES[0][0], {"consumer_byte_rate": 1.0})]),
        quotas_etag(Format.JSON, "c1", [(ClientQuotaEntity.of({"user": None}), ENTRIES[0][1])]),
    ],
)
def test_another_answer_has_another_tag(other: str):
    assert other != TAG


@pytest.mark.parametrize(
    "header",
    ["*", " * ", '"a"', 'W/"a"', '"b", "a"', '"b",W/"a" , "c"', ', "a",', '"x,y", "a"'],
)
def test_a_list_that_names_the_tag_matches(header: str | None):
    assert if_none_match(header, '"a"')


@pytest.mark.parametrize(
    "header", [None, "", "a", '"b"', '"A"', 'w/"a"', '"ba"', '"b" "a"', 'x, "a"', '"a', '"b\\"a"']
)
def test_anything_else_does_not(header: str | None):
    assert not if_none_match(header, '"a"')
