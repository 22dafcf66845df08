"""Run the pipeline's benchmark from the root of the checkout: `make bench-pipeline`."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    runpy.run_module("benchmarks.pipeline", run_name="__main__", alter_sys=True)
