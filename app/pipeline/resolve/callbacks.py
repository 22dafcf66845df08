"""What a broker's quota callback makes of quota versions.

Its metric tags are others than a user and a client-id. In the samples of its brokers they are a
user: ``quota.type:PRODUCE`` of Strimzi's static quotas, ``group:ops`` of a group.
"""

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa

from app.documents.callbacks import CallbackFileError, read_callback
from app.domain.callbacks.callback import CallbackModel
from app.domain.callbacks.groups import Groups
from app.domain.callbacks.kafka_rules import KAFKA_RULES, KafkaRules
from app.domain.callbacks.strimzi_static import StrimziStatic
from app.pipeline.errors import UsageError
from app.pipeline.lake import arrow_schema
from app.pipeline.resolve.versions import ALWAYS
from app.pipeline.tables import QUOTA_VERSION


def callback_model(path: str | None) -> CallbackModel:
    """Read the file of a callback; null is Kafka's own rules.

    Raises:
        UsageError: It cannot be used, or nobody can say what the callback did in the past.
    """
    if path is None:
        return KAFKA_RULES
    try:
        model = read_callback(Path(path)).model
    except CallbackFileError as error:
        raise UsageError(f"--callback: {error}") from error
    if not isinstance(model, KafkaRules | StrimziStatic | Groups):
        message = (
            f"--callback: what {model.name} decided in the past is not in the samples; the models "
            "kafka, strimzi-static and groups are."
        )
        raise UsageError(message)
    return model


def versions_of_callback(
    versions: pa.Table, model: CallbackModel, clusters: Collection[str]
) -> pa.Table:
    """Return the quota versions that a callback limits by, for the clusters of the series.

    Of a group it is what is stored for its user, so that nothing changes. Static limits have always
    held, whatever is stored.
    """
    if not isinstance(model, StrimziStatic):
        return versions
    rows = [
        {
            "cluster_id": cluster,
            "user": f"quota.type:{quota_type.value}",
            "user_default": False,
            "client_id": "",
            "client_default": False,
            "key": quota_type.key.value,
            "value": limit,
            "valid_from": ALWAYS,
            "origin": "inferred",
        }
        for cluster in sorted(clusters)
        for quota_type, limit in model.limits.items()
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(QUOTA_VERSION.ddl))
