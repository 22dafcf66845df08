"""Sets of ACLs by the principal that has them, and what a broker makes of them."""

from confluent_kafka.admin import AclBinding, ResourcePatternType

from tests.testkit.authorization import HERE, Verdict
from tests.testkit.service import acl

BOTH, NEITHER = Verdict(True, True), Verdict(False, False)
READER, WRITER = Verdict(True, False), Verdict(False, True)
ELSEWHERE = "127.0.0.6"

Acl = tuple[str, ...]
"""Operation, permission and host, the latter two ALLOW and ``*`` by default."""

CASES: dict[str, tuple[list[Acl], Verdict]] = {
    "nothing": ([], NEITHER),
    "describe-configs": ([("DESCRIBE_CONFIGS",)], READER),
    "alter-configs": ([("ALTER_CONFIGS",)], BOTH),
    "ALTER-CONFIGS": ([], NEITHER),
    "plain-describe": ([("DESCRIBE",)], NEITHER),
    "plain-alter": ([("ALTER",)], NEITHER),
    "cluster-action": ([("CLUSTER_ACTION",)], NEITHER),
    "all": ([("ALL",)], BOTH),
    "all-but-alter": ([("ALL",), ("ALTER_CONFIGS", "DENY")], READER),
    "all-but-describe": ([("ALL",), ("DESCRIBE_CONFIGS", "DENY")], WRITER),
    "alter-not-describe": ([("ALTER_CONFIGS",), ("DESCRIBE_CONFIGS", "DENY")], WRITER),
    "describe-not-alter": ([("DESCRIBE_CONFIGS",), ("ALTER_CONFIGS", "DENY")], READER),
    "all-and-none": ([("ALL",), ("ALL", "DENY")], NEITHER),
    "denied-plain-describe": ([("ALTER_CONFIGS",), ("DESCRIBE", "DENY")], BOTH),
    "from-here": ([("ALTER_CONFIGS", "ALLOW", HERE)], BOTH),
    "from-elsewhere": ([("ALTER_CONFIGS", "ALLOW", ELSEWHERE)], NEITHER),
    "not-from-here": ([("ALL",), ("ALTER_CONFIGS", "DENY", HERE)], READER),
    "not-from-elsewhere": ([("ALL",), ("ALL", "DENY", ELSEWHERE)], BOTH),
    "range-of-addresses": ([("ALL", "ALLOW", "127.0.0.0/8")], NEITHER),
    "super": ([("ALL", "DENY")], BOTH),
    "prefixed": ([], BOTH),
    "prefixed-denial": ([("ALL",)], READER),
}
SUPER_USERS = "User:super;User:*"
JUDGED = (*CASES, "revoked", "revoked-now", "service-account", "alice", "bob", "ALICE")
"""Who may log in at a broker with ``PASSWORD`` to be judged by it."""


def prefixed(user: str, operation: str, permission: str) -> AclBinding:
    literal = acl(user, operation, permission)
    return AclBinding(
        literal.restype,
        literal.name,
        ResourcePatternType.PREFIXED,
        literal.principal,
        literal.host,
        literal.operation,
        literal.permission_type,
    )


ACLS = [
    *(acl(user, *rule) for user, (acls, _) in CASES.items() for rule in acls),
    prefixed("prefixed", "ALTER_CONFIGS", "ALLOW"),
    prefixed("prefixed-denial", "ALTER_CONFIGS", "DENY"),
]
