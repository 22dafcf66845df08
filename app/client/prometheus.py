"""What a Prometheus server has of quotas now: samples by broker, from two questions."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from app.client.configuration import read_line
from app.client.errors import UnreachableError, UsageError
from app.domain.broker_metrics import Sample, is_quota_metric, sample_of_labels
from app.domain.entities import visible
from app.domain.metric_labels import BROKER, CLUSTER, INSTANCE, labels_by_field

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S: Final = 30.0
_NO_BROKER: Final = "?"


Own = Callable[[], frozenset[str]]
"""Returns what the cluster is called: its name in the service, and Kafka's id."""


def samples_by_broker(
    address: str, token_file: Path | None, own: Own
) -> dict[int | str, list[Sample]]:
    """Return the newest samples of quota metrics by broker: its number, else its instance.

    Args:
        address: Of the server, such as ``http://prometheus:9090``; VictoriaMetrics and Thanos have
            the same API.
        token_file: Holds a bearer token for it; null: none.
        own: Asked for where series say of which cluster they are: others are left out.

    Raises:
        UsageError: It is no such address, the token cannot be read, or series are of other clusters
            alone.
        UnreachableError: It does not answer, or not as Prometheus does.
    """
    import httpx  # noqa: PLC0415 - takes a while to import

    url = _url_of(address)
    headers = {"Accept-Encoding": "gzip"}
    if token_file is not None:
        token = read_line(token_file, "--prometheus-token-file")
        headers["Authorization"] = f"Bearer {token.decode()}"
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S) as client:
            names = [*filter(is_quota_metric, _asked(client, "label/__name__/values", {}))]
            if not names:
                return {}
            any_of = json.dumps("|".join(map(re.escape, sorted(names))), ensure_ascii=False)
            found = _asked(client, "query", {"query": f"{{__name__=~{any_of}}}"})
            return _by_broker(_of_cluster(found["result"], own))
    except httpx.HTTPError as error:
        cause = visible(str(error)) or type(error).__name__
        raise UnreachableError(f"Prometheus at {url} gives no answer ({cause}).") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UnreachableError(f"What {url} answers is not Prometheus' API.") from error


def _url_of(address: str) -> str:
    read = urlsplit(address)
    if read.scheme not in ("http", "https") or not read.hostname or read.query or read.fragment:
        raise UsageError("--prometheus is no address such as http://prometheus:9090.")
    if read.username is not None or read.password is not None:
        raise UsageError("--prometheus holds no user and password: give --prometheus-token-file.")
    return address.rstrip("/").removesuffix("/api/v1")


def _asked(client: "httpx.Client", path: str, query: Mapping[str, str]) -> Any:
    from app.client.receiving import send  # noqa: PLC0415 - slow to import

    request = client.build_request("GET", f"/api/v1/{path}", params=dict(query))
    return json.loads(send(client, request).raise_for_status().content)["data"]


def _of_cluster(result: Any, own: Own) -> list[Any]:
    """Return the series of one cluster, as far as their labels say it."""
    clusters = [_label_of(series["metric"], CLUSTER) for series in result]
    if not any(clusters):
        return list(result)
    names = own()
    if not names.intersection(clusters):
        found = ", ".join(sorted({visible(each) for each in clusters if each}))
        raise UsageError(
            f"Prometheus has quotas of the clusters {found}, and this is "
            f"{' or '.join(sorted(names))}: give --endpoint, or make the label `cluster` one of "
            "these."
        )
    pairs = zip(result, clusters, strict=True)
    return [series for series, cluster in pairs if not cluster or cluster in names]


def _label_of(labels: Mapping[str, str], field: str) -> str:
    names = labels_by_field(name for name, value in labels.items() if value).get(field)
    return labels[names[0]] if names else ""


def _by_broker(result: Any) -> dict[int | str, list[Sample]]:
    found: dict[int | str, list[Sample]] = {}
    for series in result:
        labels = dict(series["metric"])
        sample = sample_of_labels(labels.pop("__name__"), labels, float(series["value"][1]))
        found.setdefault(_broker_of(labels), []).append(sample)
    return dict(sorted(found.items(), key=lambda each: (isinstance(each[0], str), each[0])))


def _broker_of(labels: Mapping[str, str]) -> int | str:
    broker = _label_of(labels, BROKER) or _label_of(labels, INSTANCE) or _NO_BROKER
    return int(broker) if broker.isascii() and broker.isdecimal() else broker
