"""The service of this machine: when it is up."""

from pathlib import Path
from typing import Any

import pytest

from app.localdev.service import LocalService


def ready(prod: str, staging: str) -> tuple[int, Any]:
    return 200, {"clusters": {"prod": {"status": prod}, "staging": {"status": staging}}}


def test_a_service_of_several_clusters_is_up_once_each_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    answers = iter([(503, {}), ready("ok", "unavailable"), ready("ok", "ok")])
    service = LocalService("127.0.0.1", 1, tmp_path / "log")
    for name, act in (("spawn", None), ("is_running", True)):
        monkeypatch.setattr(service, name, lambda *_, act=act, **__: act)
    monkeypatch.setattr(service, "_ask", lambda *_: next(answers))
    service.start({})
    assert next(answers, None) is None
