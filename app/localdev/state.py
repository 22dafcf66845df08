"""What a local server remembers in its directory between two starts: a small private JSON file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_state(path: Path) -> dict[str, Any]:
    """Return what was written, or nothing where nothing was."""
    if not path.exists():
        return {}
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return state


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state, readable by its owner alone, all or nothing."""
    write_private(path, json.dumps(state, indent=2) + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, all or nothing."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)
