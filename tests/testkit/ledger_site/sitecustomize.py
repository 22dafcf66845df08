"""Counts what this process starts; Python imports it at its start, and the project is not there."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_spec = spec_from_file_location("ledger", Path(__file__).parents[1] / "ledger.py")
assert _spec is not None
assert _spec.loader is not None
_ledger = module_from_spec(_spec)
_spec.loader.exec_module(_ledger)
_ledger.watch()
