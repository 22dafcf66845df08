"""Alters and describes client quotas with kafka-python, one job for each line of standard input.

The jobs and their results are those of ``benchmarks/competitors/peers.py``. This file is
run as a script, so that its start costs what the start of a user's own script costs.
"""

import json
import sys
import time
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest


def run(client: KafkaAdminClient, job: dict[str, Any]) -> dict[str, Any]:
    """Do a job; the request is built before the clock starts."""
    request = DescribeClientQuotasRequest(components=[], strict=False)
    if job["do"] == "alter":
        request = alter_request(job)
    # The library has the messages of both calls and no method for them.
    manager = client._manager  # noqa: SLF001
    begun = time.perf_counter()
    answer = manager.run(manager.send, request)
    took = time.perf_counter() - begun
    refused = [item for item in (answer, *answer.entries) if getattr(item, "error_code", 0)]
    if refused:
        return {"error": str(refused[0])}
    return {"ms": took * 1000, "entities": len(answer.entries)}


def alter_request(job: dict[str, Any]) -> Any:
    """Return the request that sets each value of each entity."""
    entry = AlterClientQuotasRequest.EntryData
    ops = [entry.OpData(key=key, value=value, remove=False) for key, value in job["values"].items()]
    entries = [
        entry(
            entity=[
                entry.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
            ],
            ops=ops,
        )
        for names in job["entities"]
    ]
    return AlterClientQuotasRequest(entries=entries, validate_only=False)


def main(bootstrap_servers: str) -> None:
    """Do the jobs of standard input until it ends."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        for line in sys.stdin:
            print(json.dumps(run(client, json.loads(line))), flush=True)
    finally:
        client.close()


if __name__ == "__main__":
    main(sys.argv[1])
