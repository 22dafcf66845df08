"""Clients that generators make from the published document alter a real quota."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.integration.http.service_calls import P, change
from tests.testkit.kafka import unique
from tests.testkit.service import DEADLINE_S, RunningService

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "openapi/openapi.json"
PACKAGE = "generated_client"
MODELS = "generated_models"
GENERATES_WITHIN_S = 200.0

pytestmark = pytest.mark.long


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.{name}")


def _model(name: str) -> type:
    model: type = getattr(_module("models"), name)
    return model


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Generate the client, let it be imported, and return what the generator printed.

    It formats what it writes by the ruff that it finds on the PATH.
    """
    folder = tmp_path_factory.mktemp("client")
    paths = [f"--path={DOCUMENT}", f"--output-path={folder / PACKAGE}"]
    printed = _generate(folder, "openapi-python-client", "generate", "--meta=none", *paths)
    with _importable(folder, PACKAGE):
        yield printed


def _generate(folder: Path, program: str, *arguments: str) -> str:
    programs = Path(sys.executable).parent
    done = subprocess.run(
        [programs / program, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=GENERATES_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def _importable(folder: Path, package: str) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


@pytest.fixture
def session(generated: str, service: RunningService) -> Iterator[Any]:
    """Return the generated ``AuthenticatedClient`` as alice."""
    authenticated = _module("client").AuthenticatedClient
    with authenticated(base_url=service.url, token="alice", timeout=DEADLINE_S) as client:
        yield client


def call(session: Any, operation: str, **arguments: object) -> Any:
    """Call an operation, ``quotas.describe_quotas`` for example; return its document."""
    return _module(f"api.{operation}").sync(client=session, **arguments)


def test_nothing_is_left_out_of_the_generated_client(generated: str) -> None:
    assert "Warning" not in generated
    assert "Unable" not in generated


def test_every_module_of_the_generated_client_can_be_imported(generated: str) -> None:
    folder = Path(str(_module("client").__file__)).parent
    names = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py")]
    for name in names:
        _module(".".join(name.parts).removesuffix(".__init__"))
    assert len(names) > 100


def test_a_generated_client_alters_describes_and_resolves_a_quota(session: Any) -> None:
    user = unique()
    body = {"alterations": [change({"user": user}, {P: 1024})]}
    request = _model("AlterationRequest").from_dict(body)
    report = call(session, "alterations.alter_quotas", body=request)
    assert isinstance(report, _model("AlterationRecord")), report
    assert [str(result.outcome) for result in report.results] == ["applied"]

    listing = call(session, "quotas.describe_quotas", filter_=[f"user={user}"])
    assert isinstance(listing, _model("QuotaListing")), listing
    (quota,) = listing.quotas
    assert quota.values.to_dict() == {"producer_byte_rate": 1024}

    resolution = call(session, "resolve.resolve_quotas", user=user)
    assert isinstance(resolution, _model("Resolution")), resolution
    resolved = resolution.quotas.producer_byte_rate
    assert (resolved.value, resolved.unit) == (1024, "bytes/s")


def test_a_generated_client_reads_a_refusal_as_a_problem(session: Any) -> None:
    problem = call(session, "resolve.resolve_quotas", ip="nowhere")
    assert isinstance(problem, _model("Problem")), problem
    assert [error.pointer for error in problem.errors] == ["ip"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Return the models that datamodel-codegen makes."""
    folder = tmp_path_factory.mktemp("models")
    paths = [f"--input={DOCUMENT}", f"--output={folder / MODELS}.py"]
    kinds = ["--input-file-type=openapi", "--output-model-type=pydantic_v2.BaseModel"]
    _generate(folder, "datamodel-codegen", *paths, *kinds, "--target-python-version=3.11")
    with _importable(folder, MODELS):
        yield importlib.import_module(MODELS)


def test_generated_models_write_requests_and_read_answers(
    models: ModuleType, service: RunningService
) -> None:
    alice = {"Authorization": "Bearer alice"}
    user = unique()
    body = {"alterations": [change({"user": user}, {P: 1024})]}
    request = models.AlterationRequest.model_validate(body)
    with httpx.Client(base_url=service.url, headers=alice, timeout=DEADLINE_S) as client:
        altered = client.post(
            "/quotas/alterations",
            content=request.model_dump_json(by_alias=True, exclude_unset=True),
            headers={"Content-Type": "application/json"},
        )
        described = client.get("/quotas", params={"filter": f"user={user}"})
        resolved = client.get("/quotas/resolve", params={"user": user})
        refused = client.get("/quotas/resolve", params={"ip": "nowhere"})

    report = models.AlterationRecord.model_validate_json(altered.text)
    assert [result.outcome for result in report.results] == ["applied"]
    (quota,) = models.QuotaListing.model_validate_json(described.text).quotas
    assert quota.values.model_dump() == {"producer_byte_rate": 1024}
    resolution = models.Resolution.model_validate_json(resolved.text).quotas.producer_byte_rate
    assert (resolution.value.root, resolution.unit) == (1024, "bytes/s")
    problem = models.Problem.model_validate_json(refused.text)
    assert [error.pointer for error in problem.errors] == ["ip"]
