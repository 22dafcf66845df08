"""The parent of Spark's Python workers on this machine: it has imported what their tasks need.

Spark's own imports nothing, so each worker imports pandas and pyarrow anew. Each task of Spark also
forgets what Python has found out about its path, and then reads the directories of Spark's archives
again, file by file. PySpark is installed here, so the workers do without the archives. Each looks
for garbage after its task, but not among what was imported here.
"""

import gc
import importlib
import sys
from pathlib import Path
from typing import Final

_IMPORTED: Final = (
    *("pandas", "pyarrow.acero", "pyarrow.compute", "pyspark.worker"),
    *("app.pipeline.ingest.read", "app.pipeline.resolve.series"),
    *("app.pipeline.usage.days", "app.pipeline.usage.buckets", "app.pipeline.usage.incidents"),
)


def main() -> None:
    """Fork a worker for each request of the JVM, until it closes the input."""
    sys.path[:] = [entry for entry in sys.path if not Path(entry).is_file()]
    sys.path_importer_cache.clear()
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
