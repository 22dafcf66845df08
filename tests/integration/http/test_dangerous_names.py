"""Names that look dangerous are ordinary names: kept, found and listed exactly as they are."""

from urllib.parse import quote

import pytest

from tests.testkit.kafka import unique
from tests.testkit.service import RunningService

TEXTS = {
    "the word for the default": "<default>",
    "a slash": "a/b/../c",
    "an encoded slash": "a%2Fb%252F",
    "marks of a query": "a?b#c;d=e&f+g h",
    "marks of a filter": "=user:any^=x",
    "quotes": "\"'`\\",
    "SQL": "'; drop table audit_event; --",
    "wildcards of SQL": "%_\\%",
    "a formula": "=cmd|'/c calc'!A1",
    "a template": "{{7*7}} ${jndi:ldap://x} $(id)",
    "markup": "<script>alert(1)</script>",
    "a line of a log": "x\r\nlevel=error msg=forged",
    "control characters": "\x01\x07\x1b[31m\x7f\x85",
    "blanks": "  ",
    "no-break and zero-width": "\u00a0\u200b\ufeff",
    "from right to left": "\u202egnp.exe",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "beyond the basic plane": "\U0001f600",
    "no character": "\uffff\ufffe",
    "a surrogate pair as written in JSON": "\\ud83d\\ude00",
    "a principal": "User:alice",
    "a distinguished name": "CN=a\\,b,OU=x,O=Ünïcode GmbH",
    "JSON": '{"user": null}',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_name_comes_back_as_it_went_in(service: RunningService, text: str) -> None:
    client_id = unique("odd")
    entity = {"user": text, "client-id": client_id}
    answer = service.alter({"entity": entity, "ops": [{"key": "request_percentage", "value": 50}]})
    assert answer.status_code == 200, answer.text
    try:
        query = f"filter=user={quote(text, safe='')}&filter=client-id={client_id}"
        (described,) = service.api("bob").get(f"/quotas?{query}").json()["quotas"]
        assert described["entity"] == entity
        query = f"user={quote(text, safe='')}&client-id={client_id}"
        resolved = service.api("bob").get(f"/quotas/resolve?{query}").json()
        assert resolved["quotas"]["request_percentage"]["source"]["entity"] == entity
        query = f"entity=user={quote(text, safe='')}&entity=client-id={client_id}"
        (row,) = service.api("auditor").get(f"/audit?{query}").json()["rows"]
        assert row["entity"] == entity
        path = f"/quotas/alterations/{row['alteration_id']}"
        (result,) = service.api().get(path).json()["results"]
        assert result["entity"] == entity
    finally:
        removal = {"entity": entity, "ops": [{"key": "request_percentage", "remove": True}]}
        assert service.alter(removal).status_code == 200
