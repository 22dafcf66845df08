"""The different names of points, and the ids of their series."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf

from app.pipeline.errors import UsageError
from app.pipeline.hashes import hash_numbers, hash_texts
from app.pipeline.ingest.texts import Texts, pairs
from app.pipeline.usage.measures import Numbers

NAMES: Final = ("key", "user", "client_id")


@dataclass(frozen=True, slots=True)
class SeriesNames:
    """The different names of points, in the order of cluster and series.

    ``cluster`` are indices of ``clusters``, texts in order; ``texts`` are the columns ``NAMES``.
    """

    series: Numbers
    cluster: Numbers
    clusters: pa.Array
    texts: dict[str, pa.Array]

    @classmethod
    def of(cls, points: pa.Table, grain: str) -> tuple[Self, Numbers]:
        """Return the names, and which of them each point has.

        Raises:
            UsageError: Two series have the same id.
        """
        columns = {name: Texts.of(points[name]) for name in ("cluster_id", *NAMES)}
        codes, own = columns["cluster_id"].codes, np.arange(len(columns["cluster_id"].values))
        chosen = {"cluster_id": own}
        for name in NAMES:
            number = len(columns[name].values)
            codes, both = pairs(codes, columns[name].codes, number)
            former, new = np.divmod(both, number)
            chosen = {**{each: found[former] for each, found in chosen.items()}, name: new}
        arrays = {name: pa.array(found.values, pa.string()) for name, found in columns.items()}
        of_cluster = hash_texts(arrays["cluster_id"])[chosen["cluster_id"]]
        ids = hash_numbers(hash_texts(arrays["key"].take(pa.array(chosen["key"])), of_cluster))
        for name in NAMES[1:]:
            ids = hash_numbers(hash_texts(arrays[name])[chosen[name]], ids)
        ids = hash_numbers(hash_texts(pa.array([grain])).repeat(len(ids)), ids)
        clusters, cluster = np.unique(
            np.array([f"{name}".encode() for name in columns["cluster_id"].values], object),
            return_inverse=True,
        )
        numbers = cluster[chosen["cluster_id"]]
        order = np.lexsort((ids, numbers))
        names = cls(
            ids[order],
            numbers[order],
            pa.array([name.decode() for name in clusters]),
            {name: arrays[name].take(pa.array(chosen[name][order])) for name in NAMES},
        )
        names.require_own_ids()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return names, ranks[codes]

    def require_own_ids(self) -> None:
        """Make sure that no two series have the same id: by hour and id they are joined.

        Raises:
            UsageError: Two have.
        """
        order = np.argsort(self.series, kind="stable")
        same = np.flatnonzero(np.diff(self.series[order]) == 0)
        if len(same):
            both = pa.array(np.sort(order[same[0] : same[0] + 2]))
            clusters = self.clusters.take(pa.array(self.cluster)).take(both)
            columns = [clusters, *(self.texts[name].take(both) for name in NAMES)]
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            message = (
                f"{' and '.join(map(str, sorted(rows)))} have the same series_id, a hash: leave "
                "one of them out of the input."
            )
            raise UsageError(message)


def series_id(grain: str) -> Column:
    """Return the hash of cluster, key, names and grain; each text is hashed once."""
    names = "xxhash64(cluster_id, key), xxhash64(user), xxhash64(client_id)"
    return sf.expr(f"xxhash64({names}, xxhash64('{grain}'))")
