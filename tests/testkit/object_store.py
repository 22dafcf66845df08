"""A server of S3's interface on this machine: moto, in an environment of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from app.localdev.processes import HOST, free_ports
from tests.testkit.patience import wait_until
from tests.testkit.processes import DEADLINE_S, running

_ROOT = Path(__file__).parent.parent.parent
_VENV = _ROOT / ".venv-object-store"
_LOCKED = _ROOT / "requirements" / "object-store.txt"


@contextmanager
def object_store(bucket: str, folder: Path) -> Iterator[str]:
    """Run it for the length of a block, with an empty bucket; give its address.

    Its 80 MB are fetched where they are missing.
    """
    uv, environ = Path(sys.executable).with_name("uv"), {**os.environ, "VIRTUAL_ENV": str(_VENV)}
    make = [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, _VENV]
    subprocess.run(make, check=True)
    sync = [uv, "pip", "sync", "--quiet", "--require-hashes", _LOCKED]
    subprocess.run(sync, env=environ, check=True)
    (port,) = free_ports(1)
    url = f"http://{HOST}:{port}"

    def has_bucket() -> bool:
        try:
            with urlopen(Request(f"{url}/{bucket}", method="PUT"), timeout=30):
                return True
        except URLError:
            return False

    log = folder / "object-store.log"
    server = [_VENV / "bin" / "python", "-m", "moto.server", "-H", HOST, "-p", str(port)]
    with running(server, log):
        wait_until(has_bucket, f"the object store answers; see {log}", DEADLINE_S)
        yield url
