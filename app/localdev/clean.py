"""Forget the data of `dev`: `python -m app.localdev.clean`."""

import os
import sys

from app.localdev.errors import LocalDevError
from app.localdev.local_directory import forget, local_directory

if __name__ == "__main__":
    try:
        forget(local_directory(os.environ))
    except LocalDevError as error:
        sys.exit(str(error))
