"""The document may change in form, never in what callers rely on."""

from tests.unit.http.promises import promised, relied_on
from tests.unit.http.test_openapi import DOCUMENT


def test_the_document_promises_what_callers_rely_on() -> None:
    before, now = set(relied_on()), set(promised(DOCUMENT))
    assert before
    assert before - now == set(), "these are promised no more"
    assert now - before == set(), "python -m tests.unit.http.promises writes these, too"
