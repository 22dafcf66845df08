"""Content negotiation."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.errors import NotAcceptableError
from app.http.formats import Format, negotiate


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, Format.JSON),
        ("", Format.JSON),
        ("*/*", Format.JSON),
        ("application/json", Format.JSON),
        ("application/json;charset=utf-8", Format.JSON),
        ("APPLICATION/YAML", Format.YAML),
        ("application/x-ndjson", Format.NDJSON),
        ("text/csv", Format.CSV),
        ("text/*", Format.CSV),
        ("application/*", Format.JSON),
        ("text/html, application/yaml;q=0.1", Format.YAML),
        ("text/csv;q=0.5, application/yaml;q=0.6", Format.YAML),
        ("application/yaml, text/csv", Format.CSV),
        ("application/json;q=0, */*", Format.NDJSON),
        ("application/*;q=0, */*;q=0.1", Format.CSV),
        ("*/*;q=0.1, application/*;q=0.9, application/json;q=0.2", Format.NDJSON),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Format.JSON),
        ("text/csv ; q=1.000", Format.CSV),
        ("nonsense, text/csv", Format.CSV),
    ],
)
def test_the_format_that_the_caller_likes_best_is_chosen(accept: str | None, media_type: Format):
    assert negotiate(accept) is media_type


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/xml, image/*",
        "*/*;q=0",
        "text/csv;q=0.000",
        "nonsense",
        "text/csv;q=2",
        "application/json;q=-1",
        "application/",
    ],
)
def test_a_caller_who_accepts_none_of_the_formats_is_told_so(accept: str | None):
    with pytest.raises(NotAcceptableError):
        negotiate(accept)


@given(st.text(st.characters(codec="latin-1")))
def test_no_header_raises_anything_else(accept: str | None):
    with suppress(NotAcceptableError):
        assert negotiate(accept) in Format
