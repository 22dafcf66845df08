"""Entries that are written many at a time are those that are written one by one."""

from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity
from app.http.answers import quota_json
from app.http.json_entries import entry_texts
from app.http.json_text import json_bytes

NAMES = (
    st.none() | st.text(max_size=20) | st.sampled_from(["%b", '"', ">?~", "ä", "\0\n", "\ud800"])
)
KINDS = st.sampled_from(["user", "client-id", "ip", "%b of another time"])
ENTITIES = st.dictionaries(KINDS, NAMES, max_size=4).map(ClientQuotaEntity.of)
NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 2.0**53, 2.0**63, 2.0**64, 1e300, 0.1])
KEYS = st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]) | st.text(max_size=5)
QUOTAS = st.dictionaries(ENTITIES, st.dictionaries(KEYS, NUMBERS, max_size=3), max_size=8)


@given(QUOTAS)
@example({ClientQuotaEntity(()): {}})
@example({ClientQuotaEntity.of({"user": "\ud800"}): {}, ClientQuotaEntity.of({"ip": "a"}): {}})
def test_each_is_written_as_by_itself(quotas: Quotas):
    written = [json_bytes(quota_json(entity, values)) for entity, values in quotas.items()]
    assert list(entry_texts(quotas.items())) == written


def test_more_than_are_written_at_once_are_written_in_order():
    shared = {"producer_byte_rate": 5.0}
    quotas: Quotas = {
        ClientQuotaEntity.of({"user": f"user-{number}"}): (
            shared if number % 3 else {"request_percentage": number / 2}
        )
        for number in range(1_700)
    }
    written = [json_bytes(quota_json(entity, values)) for entity, values in quotas.items()]
    assert list(entry_texts(iter(quotas.items()))) == written
