"""A service of several clusters, and its file."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.testkit.service import RunningService, new_service

OF_ONE_CLUSTER = ("KAFKA_BOOTSTRAP_SERVERS", "AUDITORS", "SUPER_USERS")

Entries = Mapping[str, Mapping[str, Any]]


def write_clusters(path: Path, clusters: Entries, default: str | None = None) -> None:
    """Write the file; the first cluster is the default unless another one is named."""
    document = {"default": default or next(iter(clusters)), "clusters": clusters}
    path.write_text(json.dumps(document), encoding="utf-8")


def of_clusters(
    folder: Path, database_url: str, clusters: Entries, **options: Any
) -> RunningService:
    """Return a service of these clusters, to be started; its file is ``clusters.yaml``."""
    path = folder / "clusters.yaml"
    write_clusters(path, clusters)
    service = new_service(folder, "", database_url, clusters_file=str(path), **options)
    for name in OF_ONE_CLUSTER:
        service.environ.pop(f"QUOTAS_{name}", None)
    return service


@contextmanager
def running_clusters(
    folder: Path, database_url: str, clusters: Entries, **options: Any
) -> Iterator[RunningService]:
    """Serve these clusters until the block ends; ``options`` are those of ``new_service``."""
    service = of_clusters(folder, database_url, clusters, **options)
    try:
        service.start()
        yield service
    finally:
        service.close()
