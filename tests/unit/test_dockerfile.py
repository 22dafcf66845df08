"""The Dockerfile names what exists; no Docker engine is needed to know that."""

import http.server
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.main import main
from tests.testkit.certificates import Authority, person

ROOT = Path(__file__).resolve().parents[2]


class Instruction(NamedTuple):
    stage: int
    word: str
    rest: str


def instructions() -> list[Instruction]:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    found: list[Instruction] = []
    stage = 0
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, rest = line.split(maxsplit=1)
            stage += word == "FROM"
            found.append(Instruction(stage, word, rest))
    return found


def those(word: str, stage: int | None = None) -> list[str]:
    wanted = [instruction for instruction in instructions() if instruction.word == word]
    return [item.rest for item in wanted if stage in (None, item.stage)]


def final_stage() -> int:
    return instructions()[-1].stage


def copied_paths() -> set[str]:
    copies = [rest.split() for rest in those("COPY") if not rest.startswith("--from")]
    return {source for words in copies for source in words[:-1]}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_copied_path_exists_and_is_in_the_build_context():
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for path in copied_paths():
        assert (ROOT / path).exists(), path
        assert f"!{path.split('/')[0]}" in kept, path


def test_the_build_has_all_that_the_wheel_is_made_of():
    packages = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {"pyproject.toml", project()["project"]["readme"], *packages}
    assert needed <= copied_paths()


def test_the_migrations_lie_in_the_working_directory_of_the_image():
    assert "migrations migrations" in those("COPY", final_stage())
    assert len(those("WORKDIR", final_stage())) == 1
    assert (ROOT / "migrations" / "env.py").is_file()


def test_every_requirement_file_is_locked_with_hashes_and_checked():
    words = " ".join(those("RUN")).split()
    options = {"--requirement", "--build-constraint"}
    files = [after for word, after in pairwise(words) if word in options]
    assert sorted(files) == [
        "requirements/bootstrap.txt",
        "requirements/dev.txt",
        "requirements/service.txt",
    ]
    assert words.count("--require-hashes") == len(files)
    for name in files:
        assert "--hash=sha256:" in (ROOT / name).read_text(encoding="utf-8")
        assert name in copied_paths()


def test_the_build_constraints_lock_the_build_backend():
    (backend,) = project()["build-system"]["requires"]
    name = backend.split(">")[0]
    locked = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith(f"{name}==") for line in locked)


def test_both_stages_have_the_python_that_everything_is_tested_with():
    tested = (ROOT / ".python-version").read_text(encoding="utf-8").strip()
    assert [rest.split()[0] for rest in those("FROM")] == [f"python:{tested}-slim"] * 2


def test_the_python_that_everything_is_tested_with_is_the_oldest_supported():
    tested = (ROOT / ".python-version").read_text(encoding="utf-8").strip()
    assert project()["project"]["requires-python"] == f">={tested}"
    assert project()["tool"]["mypy"]["python_version"] == tested
    assert project()["tool"]["ruff"]["target-version"] == f"py{tested.replace('.', '')}"


def test_the_final_stage_builds_nothing_and_is_not_root():
    assert those("RUN", final_stage()) == []
    (user,) = those("USER")
    assert all(int(number) > 0 for number in user.split(":"))


def test_the_entry_point_is_a_script_of_the_project_and_the_command_one_of_its_commands(
    capsys: pytest.CaptureFixture[str],
):
    (entry_point,) = json.loads(those("ENTRYPOINT")[0])
    assert entry_point in project()["project"]["scripts"]
    with pytest.raises(SystemExit) as ended:
        main([*json.loads(those("CMD")[0]), "--help"])
    assert ended.value.code == 0
    assert f"usage: {entry_point} serve" in capsys.readouterr().out


class _Answering(http.server.BaseHTTPRequestHandler):
    status = HTTPStatus.OK

    def do_GET(self):
        self.send_response(self.status if self.path == "/livez" else HTTPStatus.NOT_FOUND)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Unwell(_Answering):
    status = HTTPStatus.SERVICE_UNAVAILABLE


@contextmanager
def answering(handler: type[_Answering], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def probe(port: int, **settings: str) -> int:
    command = json.loads(those("HEALTHCHECK")[0].partition(" CMD ")[2])
    assert command[0] == "python"
    proxy = {"http_proxy": "http://192.0.2.1:9", "https_proxy": "http://192.0.2.1:9"}
    environ = {**os.environ, "QUOTAS_PORT": str(port), **proxy, **settings}
    done = subprocess.run(
        [sys.executable, *command[1:]], env=environ, stderr=subprocess.DEVNULL, check=False
    )
    return done.returncode


def test_the_health_check_passes_when_the_service_is_alive():
    with answering(_Answering) as port:
        assert probe(port) == 0


def test_the_health_check_uses_the_port_for_operations():
    with answering(_Answering) as port:
        assert probe(1, QUOTAS_OPERATIONS_PORT=str(port), QUOTAS_TLS_CERT_FILE="server.pem") == 0


def test_the_health_check_speaks_tls_where_tls_alone_is_served(tmp_path: Path):
    certificate = tmp_path / "server.pem"
    Authority().sign(person("server"), host="192.0.2.1").write(certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with answering(_Answering, tls) as port:
        assert probe(port, QUOTAS_TLS_CERT_FILE=str(certificate)) == 0
    with answering(_Answering) as port:
        assert probe(port, QUOTAS_TLS_CERT_FILE=str(certificate), QUOTAS_TLS_PORT="8443") == 0


def test_the_health_check_fails_when_the_service_is_not_well():
    with answering(_Unwell) as port:
        assert probe(port) == 1


def test_the_health_check_fails_when_nothing_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert probe(taken.getsockname()[1]) == 1
