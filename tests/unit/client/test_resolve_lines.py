"""What ``--resolve`` prints of a resolution."""

from app.client.commands.resolve import resolve_lines

ALICE = {"entity": {"user": "alice"}, "level": 3, "name": "user"}


def quota(value: float | None, source: object, **shared_by: str) -> dict[str, object]:
    return {"value": value, "source": source, "shared_by": shared_by, "overridden": []}


def test_a_limit_of_no_stored_quota_is_printed_with_the_tags_of_the_brokers_callback():
    quotas = {
        "producer_byte_rate": quota(100_000, None, **{"quota.type": "PRODUCE", "a": "\x1b"}),
        "consumer_byte_rate": quota(None, None, **{"quota.type": "FETCH"}),
        "request_percentage": quota(50, ALICE, user="alice"),
    }
    assert list(resolve_lines(quotas)) == [
        "producer_byte_rate=100000 shared by [a=\\x1b, quota.type=PRODUCE]",
        "request_percentage=50 {user=alice}",
    ]
