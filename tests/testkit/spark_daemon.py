"""The parent of Spark's Python workers: it has imported what their tasks need.

Each task of Spark forgets what Python has found out about its path. It then reads the directories
of Spark's own archives anew, file by file, which takes longer than most tasks of a test. PySpark is
installed, so the workers do without the archives. Each also looks for garbage after its task, but
not among what was imported here.
"""

import gc
import importlib
import sys
from pathlib import Path
from typing import Final

_IMPORTED: Final = (
    *("pandas", "pyarrow.compute", "pyspark.worker"),
    *("app.pipeline.ingest.read", "app.pipeline.usage.days", "app.pipeline.usage.buckets"),
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
