"""Port 0: the service takes a free port, and its log says which."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.testkit.certificates import Authority, person
from tests.testkit.outages import until
from tests.testkit.service import DEADLINE_S, RunningService, running_service

HOST = "127.0.0.1"
NOWHERE = f"{HOST}:1"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority()
    (folder / "authority.pem").write_text(authority.own.pem)
    authority.sign(person("server"), host=HOST).write(folder / "server.pem")
    return folder


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[RunningService]:
    """Serve without a broker and a database, of which a listener knows nothing."""
    database_url = f"postgresql://quotas@{NOWHERE}/quotas"
    with running_service(folder, NOWHERE, database_url, **settings) as running:
        yield running


def answers(url: str, certificates: Path) -> bool:
    context = ssl.create_default_context(cafile=str(certificates / "authority.pem"))
    return httpx.get(f"{url}/livez", verify=context, timeout=DEADLINE_S).is_success


def listening(service: RunningService) -> dict[int, str]:
    """Return where each worker listens."""
    complete = service.log_path.read_text().rpartition("\n")[0]
    lines = map(json.loads, complete.splitlines())
    return {line["worker"]: line["url"] for line in lines if line["event"] == "listening"}


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_the_log_names_the_port_that_was_free(tmp_path: Path, certificates: Path, log_format: str):
    with serving(tmp_path, log_format=log_format) as service:
        assert service.url.startswith(f"http://{HOST}:")
        assert answers(service.url, certificates)


def test_the_log_names_a_port_for_tls_beside_a_plain_one(tmp_path: Path, certificates: Path):
    tls = {"tls_cert_file": str(certificates / "server.pem"), "tls_port": "0"}
    with serving(tmp_path, **tls) as service:
        assert service.url.startswith(f"http://{HOST}:")
        assert service.tls_url.startswith(f"https://{HOST}:")
        assert answers(service.url, certificates)
        assert answers(service.tls_url, certificates)


def test_workers_share_the_port_that_was_free_and_tls_on_it_is_named(
    tmp_path: Path, certificates: Path
):
    tls = {"tls_cert_file": str(certificates / "server.pem")}
    with serving(tmp_path, workers="2", **tls) as service:
        assert service.url.startswith(f"https://{HOST}:")
        until(lambda: len(listening(service)) == 2, "a worker does not listen")
        assert listening(service) == {1: service.url, 2: service.url}
        assert answers(service.url, certificates)
