"""Sets of ACLs by chance: principals, addresses, patterns and operations that brokers tell apart.

A broker takes no ACL on a cluster of another name than ``kafka-cluster``, nor a prefix of it.
"""

import random
from collections.abc import Sequence
from typing import Final

from confluent_kafka.admin import AclBinding, ResourcePatternType, ResourceType

from tests.testkit.service import acl

OPERATIONS: Final = (
    *("ALTER_CONFIGS", "DESCRIBE_CONFIGS", "ALL") * 3,
    *("ALTER", "DESCRIBE", "DESCRIBE", "CLUSTER_ACTION", "CREATE", "IDEMPOTENT_WRITE"),
    *("READ", "WRITE", "DELETE"),
)
PERMISSIONS: Final = ("ALLOW", "ALLOW", "DENY")
PREFIXES: Final = ("k", "kafka-", "kafka-cluster", "kafka-cluster-2")
_LARGEST_SET: Final = 8

LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED


def on(
    one: AclBinding,
    name: str,
    pattern: ResourcePatternType = LITERAL,
    kind: ResourceType = ResourceType.BROKER,
) -> AclBinding:
    """Return the ACL on another resource; confluent-kafka calls the type Cluster BROKER."""
    return AclBinding(
        kind, name, pattern, one.principal, one.host, one.operation, one.permission_type
    )


def random_set(
    chance: random.Random, principals: Sequence[str], hosts: Sequence[str]
) -> set[AclBinding]:
    """Return up to eight ACLs of these principals and addresses, most of them on the cluster."""
    number = chance.randrange(_LARGEST_SET + 1)
    return {_random_acl(chance, principals, hosts) for _ in range(number)}


def _random_acl(
    chance: random.Random, principals: Sequence[str], hosts: Sequence[str]
) -> AclBinding:
    operation, permission = chance.choice(OPERATIONS), chance.choice(PERMISSIONS)
    one = acl(chance.choice(principals), operation, permission, chance.choice(hosts))
    match chance.randrange(10):
        case 0:
            return on(one, "kafka-cluster", kind=ResourceType.TOPIC)
        case 1:
            return on(one, chance.choice(PREFIXES), PREFIXED, ResourceType.TOPIC)
        case 2 | 3:
            return on(one, "kafka-cluster", PREFIXED)
        case _:
            return one
