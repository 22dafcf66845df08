"""The whole answer in pieces is the whole answer."""

import json

import pytest
from starlette.types import Message

from app.domain.entities import ClientQuotaEntity
from app.http import json_pieces
from app.http.formats import Format, QuotasAnswer, encode
from app.http.json_pieces import json_pieces as written
from app.http.pieces_response import PiecesResponse
from app.service.cluster_ports import Described
from app.service.reading.arranged import ArrangedImages
from tests.testkit.fake_ports import EPOCH


@pytest.mark.parametrize("number", [0, 1, 5, 12, 200])
async def test_it_is_what_an_encoder_makes_of_it(number: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_pieces, "PIECE_ENTRIES", 3)
    quotas = {ClientQuotaEntity.of({"user": f"user-{each}"}): {"k": 1.0} for each in range(number)}
    arranged = await ArrangedImages().in_order(Described(quotas, EPOCH, "cluster", 1))
    assert arranged.rendering is not None
    entries = arranged.entries or ()
    pieces = written(arranged.rendering)
    answer = QuotasAnswer("cluster", EPOCH, entries, pieces=pieces)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(dict(message))

    async def receive() -> Message:
        raise AssertionError("whoever sends is told when the caller has gone")

    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    await PiecesResponse(answer, pieces, {"ETag": '"a"'})(scope, receive, send)
    body = b"".join(message["body"] for message in sent[1:])
    assert body == b"".join(encode(Format.JSON, QuotasAnswer("cluster", EPOCH, entries)))
    assert len(json.loads(body)["quotas"]) == number
    headers = dict(sent[0]["headers"])
    assert headers == {b"etag": b'"a"', b"content-length": str(len(body)).encode()}
    assert [message.get("more_body", False) for message in sent[1:]] == [True] * (len(sent) - 2) + [
        False
    ]
