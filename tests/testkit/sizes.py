"""How large a test is: small in `make test`, as large as it ever was in `make faults`.

`TEST_SIZE=long` chooses the large sizes, among them Hypothesis's profile `long`; `TEST_SEED` is
what random faults follow from.
"""

import os
from typing import Final, TypeVar

T = TypeVar("T")

SHORT: Final = "short"
LONG: Final = "long"
SIZE: Final = os.environ.get("TEST_SIZE", SHORT)
SEED: Final = int(os.environ.get("TEST_SEED", "1"))

if SIZE not in {SHORT, LONG}:
    raise ValueError(f"TEST_SIZE is {SIZE!r}; write {SHORT} or {LONG}.")


def size(short: T, long: T) -> T:
    """Return the first, or the second where the run is a long one."""
    return long if SIZE == LONG else short
