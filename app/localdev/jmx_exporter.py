"""The JMX exporter's agent inside a local broker: its quota metrics as Prometheus text."""

from pathlib import Path
from typing import Final

from app.localdev.jars import metrics_agent
from app.localdev.ports import HOST

_ATTRIBUTES: Final = "(byte-rate|request-time|mutation-rate|tokens|throttle-time)"
_RESOURCES: Final = "(Produce|Fetch|Request|ControllerMutation)"

# The first pattern comes first: the names of a pair match that of a user as well.
_RULES: Final = f"""lowercaseOutputName: true
includeObjectNames: ["kafka.server:type=Produce,*", "kafka.server:type=Fetch,*",
  "kafka.server:type=Request,*", "kafka.server:type=ControllerMutation,*"]
rules:
- pattern: 'kafka.server<type={_RESOURCES}, user=(.*), client-id=(.*)><>{_ATTRIBUTES}'
  name: kafka_server_quota_$4
  labels: {{resource: $1, user: $2, client_id: $3}}
- pattern: 'kafka.server<type={_RESOURCES}, user=(.*)><>{_ATTRIBUTES}'
  name: kafka_server_quota_$3
  labels: {{resource: $1, user: $2}}
- pattern: 'kafka.server<type={_RESOURCES}, client-id=(.*)><>{_ATTRIBUTES}'
  name: kafka_server_quota_$3
  labels: {{resource: $1, client_id: $2}}
"""
"""Source: KafkaMbean, ClientQuotaManager, ControllerMutationQuotaManager."""


def agent_option(directory: Path, port: int) -> str:
    """Write the agent's rules into a directory; return what follows `-javaagent:`.

    Raises:
        LocalDevError: the agent's jar cannot be fetched.
    """
    rules = directory / "jmx_exporter.yaml"
    rules.write_text(_RULES, encoding="utf-8")
    return f"{metrics_agent()}={HOST}:{port}:{rules}"
