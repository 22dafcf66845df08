"""A real Prometheus and a real VictoriaMetrics scrape a real broker, and both are read.

VictoriaMetrics is built from its Go module, Prometheus comes from Debian's package.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

import httpx
import pytest
from pyspark.sql import SparkSession

from app.domain.broker_metrics import THROTTLE, UP
from app.localdev.kafka import LocalKafka
from app.localdev.processes import HOST, free_ports
from app.localdev.traffic import TrafficClient, prepare_traffic, run_traffic
from app.pipeline.ingest.points import Rules
from app.pipeline.ingest.prometheus import Server, server_inputs
from app.pipeline.ingest.read import read_points
from tests.pipeline.ingest.points import good, rows_of
from tests.testkit.patience import wait_until
from tests.testkit.processes import running
from tests.testkit.prometheus import debian_program, go_program
from tests.testkit.raw_quotas import RawQuotas

pytestmark = pytest.mark.long

LOAD_S = 100
LIMIT = 150_000.0
CLIENT = TrafficClient("alice", "etl, 100%+", 450_000)
VICTORIA = "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics@v1.136.23"
SCRAPED_EVERY_MS = 2_000
SCRAPES = """\
scrape_configs:
- job_name: kafka
  scrape_interval: 2s
  static_configs:
  - targets: ["{target}"]
    labels: {{broker: "1"}}
"""


@dataclass(frozen=True)
class Scraped:
    """Two servers, and the period in which both scraped a broker under load."""

    urls: Mapping[str, str]
    begun: datetime
    ended: datetime


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("servers")
    prometheus = debian_program("prometheus", "prometheus", folder / "package")
    victoria = go_program(VICTORIA, folder / "go")
    users = {CLIENT.user: f"{CLIENT.user}-secret"}
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka(folder / "kafka", plain_users=users, metrics=True))
        prepare_traffic(kafka.bootstrap_servers)
        raw = stack.enter_context(RawQuotas(kafka.bootstrap_servers))
        pair = {"user": CLIENT.user, "client-id": CLIENT.client_id}
        raw.store(pair, {"producer_byte_rate": LIMIT})
        config = folder / "scrapes.yml"
        config.write_text(SCRAPES.format(target=httpx.URL(kafka.metrics_url).netloc.decode()))
        ports = free_ports(2)
        commands = {
            "prometheus": [
                prometheus,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address={HOST}:{ports[0]}",
            ],
            "victoria-metrics": [
                victoria,
                f"-promscrape.config={config}",
                f"-storageDataPath={folder / 'victoria'}",
                f"-httpListenAddr={HOST}:{ports[1]}",
                "-search.latencyOffset=0s",
            ],
        }
        urls = {name: f"http://{HOST}:{port}" for name, port in zip(commands, ports, strict=True)}
        for name, command in commands.items():
            stack.enter_context(running(command, folder / f"{name}.log"))
        for url in urls.values():
            wait_until(lambda url=url: answers(url), f"{url} scrapes the broker")
        begun = datetime.now(UTC)
        done = threading.Event()
        load = threading.Thread(
            target=run_traffic, args=(kafka.sasl_bootstrap_servers, [CLIENT], done)
        )
        load.start()
        # What takes time here is the measurement itself.
        done.wait(LOAD_S)
        ended = datetime.now(UTC)
        done.set()
        load.join()
        yield Scraped(urls, begun, ended)


def answers(url: str) -> bool:
    """Tell whether a server has a scrape of the broker."""
    try:
        answer = httpx.get(f"{url}/api/v1/query", params={"query": "up"}, trust_env=False).json()
    except (httpx.HTTPError, ValueError):
        return False
    return [item["value"][1] for item in answer["data"]["result"]] == ["1"]


@pytest.mark.parametrize("name", ["prometheus", "victoria-metrics"])
def test_both_servers_give_the_rates_of_the_broker(
    scraped: Scraped, spark: SparkSession, name: str
):
    period = [int(at.timestamp() * 1_000_000) for at in (scraped.begun, scraped.ended)]
    rules = Rules(since_us=period[0], until_us=period[1])
    inputs = server_inputs([Server(scraped.urls[name])], rules, SCRAPED_EVERY_MS)
    rows = rows_of(read_points(spark, inputs, rules))
    assert [row for row in rows if row["problem"]] == []
    points = good(rows)
    rates = [row for row in points if row[2:4] == ("producer_byte_rate", "rate")]
    assert {(row[1], *row[4:6]) for row in rates} == {(1, CLIENT.user, CLIENT.client_id)}
    expected = LOAD_S * 1_000 / SCRAPED_EVERY_MS
    assert sum(row[3] == UP for row in points) == pytest.approx(expected, abs=3)
    # The client sends three times its limit: after a burst the broker holds it there, and says for
    # how long.
    assert median(row[6] for row in rates) == pytest.approx(LIMIT, rel=0.5)
    assert any(row[3] == THROTTLE and row[6] for row in points)
