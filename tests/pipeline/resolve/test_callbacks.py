"""What limited the buckets of brokers with a quota callback."""

from pathlib import Path

import pytest
import yaml

from app.domain.callbacks.callback import QuotaType
from app.domain.callbacks.groups import Groups
from app.domain.callbacks.strimzi_static import STRIMZI_STATIC, StrimziStatic
from app.domain.quota_keys import QuotaKey
from app.pipeline.errors import UsageError
from app.pipeline.resolve.callbacks import callback_model, versions_of_callback
from app.pipeline.resolve.look_up import LookUp
from app.pipeline.resolve.series import resolve
from app.pipeline.resolve.versions import Versions
from tests.pipeline.resolve.clusters import Version, observation, observation_table, quota_table

P, C = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
STATIC = StrimziStatic({QuotaType.PRODUCE: 100_000.0}, frozenset())
BUCKET = "quota.type:PRODUCE"


@pytest.mark.small
def test_static_limits_are_those_of_a_bucket_for_all_and_what_is_stored_is_ignored():
    stored = [Version("0", (("user", "alice"),), P, 1000.0, 0, None)]
    quotas = quota_table(stored)
    asked = [
        observation("0", key.value, 0, broker_id=number, user=user, client_id="")
        for number, (key, user) in enumerate(((P, BUCKET), (C, BUCKET), (P, "alice")))
    ]
    versions = versions_of_callback(quotas, STATIC, {"0"})
    found = resolve(observation_table(asked), LookUp.of(Versions.latest(versions)))
    columns = (found[name].to_pylist() for name in ("broker_id", "level", "limit", "bucket_user"))
    limits = {broker: limit for broker, *limit in zip(*columns, strict=True)}
    assert limits[0] == [3, 100_000.0, BUCKET]
    assert [limits[number][:2] for number in (1, 2)] == [[0, None], [0, None]]
    assert versions_of_callback(quotas, Groups({}, {}), {"0"}) is quotas


def test_a_file_that_cannot_be_used_is_a_mistake_of_the_caller(tmp_path: Path):
    path = tmp_path / "callback.yaml"
    for model, sentence in (
        ("static", "'static' is no model"),
        ("partition-share", "decided in the past is not in the samples"),
    ):
        (tmp_path / "topics.yaml").write_text("users: {}")
        options = {"topics_file": "topics.yaml"} if model == "partition-share" else {}
        document = {"class": STRIMZI_STATIC, "model": model, "options": options}
        path.write_text(yaml.safe_dump(document))
        with pytest.raises(UsageError, match=sentence):
            callback_model(str(path))
