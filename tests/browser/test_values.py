"""Values and texts as the page writes them, by the cases of the service's own formatter."""

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.conftest import Visitors
from tests.browser.page_calls import field

CASES: Any = json.loads(
    (Path(__file__).resolve().parents[1] / "testkit" / "value_cases.json").read_text("utf-8")
)

PERIODS = {0.4: "under 1 s", 119: "119 s", 7199: "120 min", 86_400: "24 h", 864_000: "10 days"}
PERIODS |= {330 * 86_400: "11 months"}


def run(page: Page, module: str, code: str, of: object) -> Any:
    """Return what code makes of something with the names of one of the page's modules."""
    return page.evaluate(
        f"async (of) => {{ const it = await import('/ui/{module}.js'); return {code}; }}", of
    )


def test_values_are_read_as_the_service_reads_them(visitors: Visitors):
    page = visitors.visit("/ui/quotas")
    cases = [*CASES["typed"], {"key": "producer_byte_rate", "text": " ", "value": None}]
    read = run(page, "quantities", "of.map(({ key, text }) => it.readValue(key, text))", cases)
    found = [None if value is None else float(value) for value in read]
    assert [{**case, "value": value} for case, value in zip(cases, found, strict=True)] == cases
    cases = [*CASES["unreadable"], {"key": "producer_byte_rate", "text": "1e400"}]
    cases.append({"key": "made_by_another_tool", "text": "unlimited"})
    code = "of.filter(({ key, text }) => !Number.isNaN(it.readValue(key, text)))"
    assert run(page, "quantities", code, cases) == []


def test_a_bare_number_has_its_unit_beside_it(visitors: Visitors):
    page = visitors.visit("/ui/new")
    rate = page.locator(".limit").filter(has=field(page, "producer_byte_rate"))
    unit = rate.get_by_text("bytes/s", exact=True)
    field(page, "producer_byte_rate").fill("1048576")
    expect(unit).to_be_visible()
    field(page, "producer_byte_rate").fill("1 MiB")
    expect(unit).to_have_count(0)
    field(page, "For").fill("4")
    expect(page.get_by_text("hours", exact=True)).to_be_visible()


def test_values_and_factors_are_written_as_the_service_writes_them(visitors: Visitors):
    page = visitors.visit("/ui/quotas")
    values, factors = CASES["values"], CASES["factors"]
    code = "of.map(({ key, value }) => it.inWords(key, value))"
    texts = run(page, "quantities", code, values)
    assert [{**case, "text": text} for case, text in zip(values, texts, strict=True)] == values
    code = "of.map(({ factor }) => it.factorInWords(factor))"
    texts = run(page, "quantities", code, factors)
    assert [{**case, "text": text} for case, text in zip(factors, texts, strict=True)] == factors


def test_the_exact_value_has_every_digit_and_its_unit(visitors: Visitors):
    page = visitors.visit("/ui/quotas")
    code = "of.map(([key, value]) => it.withDigits(key, value))"
    exact = {
        ("producer_byte_rate", 1): "1 byte/s",
        ("producer_byte_rate", 10485761): "10,485,761 bytes/s",
        ("producer_byte_rate", 2**63): "9,223,372,036,854,775,807 bytes/s",
        ("controller_mutation_rate", 1): "1 partition/s",
        ("request_percentage", 33.333): "33.333 %",
    }
    assert run(page, "quantities", code, list(exact)) == list(exact.values())


def test_periods_are_in_the_largest_unit_of_which_they_have_two(visitors: Visitors):
    texts = run(visitors.visit("/ui/quotas"), "quantities", "of.map(it.duration)", list(PERIODS))
    assert dict(zip(PERIODS, texts, strict=True)) == PERIODS


IN_SENTENCES = {
    "alice": "alice",
    "a  b": "a  b",
    " a ": r"\x20a\x20",
    "DOMAIN\\user": "DOMAIN\\user",
    "\x1b[31m\x7f": r"\x1b[31m\x7f",
    "\u200bzero\ufeff": r"\u200bzero\ufeff",
    "\u202egnp.exe": r"\u202egnp.exe",
    "\U000e0041": r"\U000e0041",
    "e\u0301": "e\u0301",
    "\u0301": r"\u0301",
    "a" + "\u0301" * 5: "a" + "\u0301" * 4 + r"\u0301",
    "\u05d0": "\u2068\u05d0\u2069",
}
"""Texts as they stand in a sentence; one from right to left does not turn it."""


def test_what_cannot_be_seen_in_a_text_is_an_escape(visitors: Visitors):
    texts = run(visitors.visit("/ui/quotas"), "text", "of.map(it.visible)", list(IN_SENTENCES))
    assert dict(zip(IN_SENTENCES, texts, strict=True)) == IN_SENTENCES
