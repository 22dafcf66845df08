from app.service.reading.analytics import BucketName, BucketUsage
from tests.unit.http.fake_service import FakeService, setting

USAGE = BucketUsage(1.5, 2.0, 3.0, 4, None, 0.5)
PATH = "/quotas/resolve?user=alice&usage=true"


async def test_usage_is_found_by_the_bucket():
    service = FakeService()
    await service.post("/quotas/alterations", setting(1024))
    service.analytics.known[BucketName("producer_byte_rate", "alice", "")] = USAGE
    quotas = (await service.get(PATH)).document["quotas"]
    assert quotas["producer_byte_rate"]["usage"] == {
        "p95": 1.5,
        "p99": 2,
        "max": 3,
        "throttled_minutes": 4,
        "data_through": None,
        "coverage": 0.5,
    }
    assert quotas["consumer_byte_rate"]["usage"] is None


async def test_a_database_in_trouble_does_not_stop_a_resolution():
    service = FakeService()
    service.analytics.down = True
    answer = await service.get(PATH)
    assert answer.status == 200
    assert {quota["usage"] for quota in answer.document["quotas"].values()} == {None}
    assert [note for note in answer.document["notes"] if note.startswith("The usage is left out")]
