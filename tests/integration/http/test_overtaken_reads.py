"""What held before an alteration, where another tool has changed it an instant earlier."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from app.localdev.kafka import LocalKafka
from tests.integration.http.service_calls import P, applied
from tests.testkit.kafka import unique
from tests.testkit.raw_quotas import RawQuotas, setting
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

TRIES = size(20, 1000)
AT_ONCE = 4


def test_before_and_changed_are_true_where_another_tool_has_just_changed_it(
    service: RunningService, broker: LocalKafka
) -> None:
    def tried(number: int) -> list[Any]:
        wrong = []
        with RawQuotas(broker.bootstrap_servers) as other_tool:
            for wanted in (1000, 3000) * (TRIES // AT_ONCE // 2):
                names = {"user": unique(f"overtaken-{number}")}
                applied(service, names, {P: 1000})
                other_tool.alter(setting(names, {P: 2000.0}))
                result = applied(service, names, {P: wanted})
                if (result["before"], result["changed"]) != ({P: 2000}, True):
                    wrong.append(result)
        return wrong

    service.api()  # threads that make a client each lose all but one
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = [item for wrong in pool.map(tried, range(AT_ONCE)) for item in wrong]
    assert not found, f"{len(found)} of {TRIES}: {found[:3]}"
