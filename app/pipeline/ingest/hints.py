"""What to say where an input has nothing that counts: which label or rule is missing."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame

from app.domain.broker_metrics import NO_QUOTA_METRICS
from app.domain.metric_labels import INSTANCE, labels_by_field
from app.pipeline.ingest.checks import Tally
from app.pipeline.ingest.inputs import Inputs
from app.pipeline.ingest.points import MISSING_BROKER, UNKNOWN_METRIC

_SERIES = 100
_VALUES = 3


def without_quota_metrics(counted: Tally) -> str | None:
    """Return what may be wrong where no metric of the input is one of quotas; null elsewhere."""
    if counted.hours or counted.refused.keys() - {UNKNOWN_METRIC}:
        return None
    return f"No quota metrics in this input: {NO_QUOTA_METRICS}."


def without_brokers(counted: Tally, surplus: DataFrame, inputs: Inputs) -> str | None:
    """Return which label may name the brokers where no point does; null elsewhere."""
    if counted.fine or MISSING_BROKER not in counted.refused:
        return None
    columns = [group.headers.columns.values() for group in inputs.groups]
    # JSON has no headers.
    found: Mapping[str, list[str]] = {
        header: [] for headers in columns for header in headers if header
    } or _labels(surplus)
    instances = labels_by_field(found).get(INSTANCE, [])
    if instances:
        values = found[instances[0]]
        examples = f" ({', '.join(values)})" if values else ""
        key = json.dumps(values[0] if values else "HOST:PORT", ensure_ascii=False)
        return (
            f"No row names its broker. There is {instances[0]}{examples}: say which broker each "
            f"value is in the file of --map, as in `instances: {{{key}: 1}}`."
        )
    return (
        f"No row names its broker; there are {', '.join(sorted(found)) or 'no labels'}. Say in the "
        "file of --map which it is, as in `columns: {broker_id: LABEL}`, and `instances: "
        "{VALUE: 1}` where its values are no ids."
    )


def _labels(surplus: DataFrame) -> Mapping[str, list[str]]:
    """Return the labels of some series without brokers, with some of their values."""
    texts = surplus.where(f"reason = '{MISSING_BROKER}'").select("raw").limit(_SERIES)
    found: dict[str, list[str]] = {}
    for row in texts.distinct().collect():
        try:
            document = json.loads(row.raw)
        except ValueError:
            # It is cut where it is long.
            continue
        labels = document.get("labels", document)
        for name, value in labels.items():
            values = found.setdefault(name, [])
            if value not in values and len(values) < _VALUES:
                values.append(value)
    return found
