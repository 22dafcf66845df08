"""One change from a shell: what a person or a script waits for, the start of a process included."""

from benchmarks.alter_arms import BareAlter, PostAlter
from benchmarks.competitors.peer import Peers
from benchmarks.plan import Plan
from benchmarks.process_arms import CurlAlter, PeerProcessAlter, ToolAlter
from benchmarks.rounds import Arm, interleaved
from benchmarks.session import Session
from benchmarks.tables import LATENCY_COLUMNS, Goal, Section, Table, latency_cells, show
from benchmarks.workload import Entities

_BARE = "bare alter, warm"
_POST = "`POST`, `wait: none`, warm"
_CURL = "`curl` to the service, `wait: none`"
_TOOL = "`kafka-configs`"
_LIMIT = 20.0
_LIMIT_MS = 5.0


async def measure_shell(session: Session, plan: Plan, peers: Peers) -> Section:
    """Measure one alteration by one process of each kind, beside the two warm clients.

    Raises:
        BenchmarkError: A process has failed.
    """
    arms: list[Arm] = [
        BareAlter(_BARE, session, Entities("shell-bare")),
        PostAlter(_POST, session, Entities("shell-post"), wait="none"),
    ]
    if peers.has_curl:
        arms.append(CurlAlter(_CURL, session, Entities("shell-curl")))
    arms += [
        PeerProcessAlter(f"{peer.name}, one process", session, Entities(f"shell-{number}"), peer)
        for number, peer in enumerate(peers.present)
    ]
    arms.append(ToolAlter(_TOOL, session, Entities("shell-tool")))
    measures = await interleaved(arms, rounds=plan.shell_alters, warm_up=1)
    our_arm = _CURL if peers.has_curl else _POST
    bare, ours, tool = measures[_BARE], measures[our_arm], measures[_TOOL]
    rows = [
        [*latency_cells(name, measure), show(measure.ratio_to(bare)), show(measure.ratio_to(ours))]
        for name, measure in measures.items()
    ]
    note = (
        "One entity, 2 keys, from the start of the process to its end; the two warm clients are "
        "there for comparison. The service records each change before and after (fsync on). "
        "`kafka-configs` is `kafka.admin.ConfigCommand` called directly with `-Xmx256M "
        "-XX:+UseG1GC`: Kafka's shell scripts would come on top."
    )
    goals = (
        Goal(f"`kafka-configs` / {our_arm}", _LIMIT, tool.ratio_to(ours), at_most=False),
        Goal(
            "warm `POST` of 1 entity beside those processes: ms more than a bare alter",
            _LIMIT_MS,
            measures[_POST].excess_over(bare),
        ),
    )
    columns = (*LATENCY_COLUMNS, "x bare", f"x {our_arm}")
    table = Table("One change from a shell", note, columns, rows)
    return Section(table, goals, measures)
