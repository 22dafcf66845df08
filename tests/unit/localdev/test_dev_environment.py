"""What of this shell's environment the service of ``make run`` gets."""

from pathlib import Path

from app.localdev.dev import _service_environment


def test_the_cluster_of_the_command_does_not_keep_the_service_from_starting(tmp_path: Path):
    shell = {"QUOTAS_CLUSTER": "prod", "QUOTAS_CLUSTER_ID": "id", "HOME": "/h"}
    ours = _service_environment(shell, tmp_path)
    assert "QUOTAS_CLUSTER" not in ours
    assert (ours["QUOTAS_CLUSTER_ID"], ours["HOME"]) == ("id", "/h")
