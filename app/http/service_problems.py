"""What can be wrong with this service or what it depends on, in words for people."""

from collections.abc import Mapping
from typing import Final

from app.http.problem_text import ProblemText

SERVICE_PROBLEMS: Final[Mapping[str, ProblemText]] = {
    "rate-limited": ProblemText(
        "Over a rate limit of this service",
        "One caller sends more requests a second, or has more of them running at a time, than "
        "this service lets one caller have. Nothing was done.",
        "Send the request again after the time in Retry-After, and fewer of them: several "
        "entities fit in one alteration.",
        "See whom it concerns in the log. The limits are QUOTAS_READS_PER_S, "
        "QUOTAS_ALTERATIONS_PER_S, QUOTAS_REQUESTS_AT_ONCE, "
        "QUOTAS_AUTHENTICATION_FAILURES_PER_S and QUOTAS_PUBLIC_REQUESTS_PER_S.",
    ),
    "too-many-requests": ProblemText(
        "Too many requests",
        "A rate limit of this service was reached, or the broker throttles.",
        "Send the request again after the time in Retry-After.",
        "See whom it concerns in the log; a broker that throttles has a quota for the service's "
        "own account.",
    ),
    "throttled-by-broker": ProblemText(
        "The broker throttles",
        "The account with which this service speaks to the brokers has used up a quota of its "
        "own. Nothing was applied.",
        "Send the request again after the time in Retry-After.",
        "Raise the controller_mutation_rate of the service's own account, or remove it.",
    ),
    "internal-error": ProblemText(
        "A fault of this service",
        "Something happened that should not: it is in the service's log under the request id.",
        "Report the request id. Before repeating an alteration, look the present values up.",
        "A bug: find the line fault by the request id.",
    ),
    "unsupported-broker-version": ProblemText(
        "The broker has no quota interface",
        "Quotas can be described and altered since Apache Kafka 2.6.",
        "Upgrade the brokers.",
        "Upgrade the brokers.",
    ),
    "broker-error": ProblemText(
        "The broker answered with an error",
        "The broker's own error and text are in kafka_error and detail.",
        "See the broker's log.",
        "The broker's own error is in kafka_error and detail; see its log.",
    ),
    "broker-answer-too-large": ProblemText(
        "The broker's answer is too large",
        "The answer has more bytes than this service reads.",
        "Narrow the filter.",
        "Ask callers to narrow their filters.",
    ),
    "broker-answer-unreadable": ProblemText(
        "The broker's answer cannot be read",
        "What came from the broker's address does not follow Kafka's protocol.",
        "Check the bootstrap servers and what stands between them and this service.",
        "Something that is not a broker answers at a broker's address: check "
        "QUOTAS_KAFKA_BOOTSTRAP_SERVERS and the advertised listeners.",
    ),
    "not-sent": ProblemText(
        "A dependency cannot be reached; nothing was sent",
        "The cluster, or the database that keeps the audit log, does not answer. Nothing is sent "
        "that could not be recorded, so nothing changed.",
        "Send the request again later; it is safe.",
        "See the detail: the cluster or the database. Nothing was sent.",
    ),
    "wrong-cluster": ProblemText(
        "Another cluster answers",
        "This service is for one cluster, and the brokers that answer are of another. Nothing was "
        "sent, and nothing that was seen of the first cluster is displayed or concluded.",
        "Tell those who run this service; it is safe to send the request again.",
        "Check what QUOTAS_KAFKA_BOOTSTRAP_SERVERS leads to, and QUOTAS_CLUSTER_ID. The service "
        "goes on when the first cluster is back; to serve the other one, restart it.",
    ),
    "cluster-unreachable": ProblemText(
        "No broker answers; nothing was sent",
        "No broker could be reached, or none let this service log in.",
        "Send the request again later; it is safe.",
        "Check brokers, network and QUOTAS_KAFKA_…; the detail says what failed.",
    ),
    "acl-source-unreachable": ProblemText(
        "The cluster's ACLs cannot be had",
        "Without ACLs that are young enough nobody's rights can be judged, so nobody passes. "
        "Nothing was sent.",
        "Send the request again later; it is safe.",
        "Nobody can be judged, so nobody passes. Check the brokers, and that the service's own "
        "account has Describe.",
    ),
    "identity-provider-unavailable": ProblemText(
        "The identity provider cannot be asked",
        "The keys that tokens are signed with are unknown, or older than an hour, and the identity "
        "provider does not tell them. Nothing was sent, nothing changed.",
        "Try again in half a minute. A token of the tokens file is still accepted.",
        "Look at QUOTAS_OIDC_… and at authn_jwks_fetch_total; the log says why a fetch failed.",
    ),
    "audit-log-unavailable": ProblemText(
        "The audit log cannot be written; nothing was sent",
        "The database that keeps the audit log does not answer. What cannot be recorded is not "
        "sent, so nothing changed. Reading quotas goes on. An alteration_id says that it fell "
        "silent over the commit: the log then has it as not sent, or not at all.",
        "Send the request again later; it is safe.",
        "The log line says why; often migrate was not run or the disk is full. Reads go on.",
    ),
    "query-too-slow": ProblemText(
        "The log was not read in time",
        "Postgres works, and has ended this read because it took too long. Nothing was sent.",
        "Ask for less: a smaller page, a shorter time with since and until, one entity or actor.",
        "Where it is frequent, see whether the log's indexes are there and the server is busy.",
    ),
    "too-many-connections": ProblemText(
        "Too many connections",
        "This process holds as many connections as it may. Nothing was read.",
        "Send the request again after the time in Retry-After; keep connections open and reuse "
        "them, and close idle ones.",
        "See who holds them; QUOTAS_MAX_CONNECTIONS is the limit, and the process needs that many "
        "file descriptors.",
    ),
    "too-many-sessions": ProblemText(
        "Too many callers are logged in",
        "This process holds as many sessions of callers who came with a user and a password as it "
        "may and all of them are in use, or too many are being logged in. Nothing was sent.",
        "Send the request again after the time in Retry-After.",
        "There are 256 sessions at most, and 64 logins under way; see authn_total for many that "
        "fail, or start another process.",
    ),
    "stopping": ProblemText(
        "This process is stopping; nothing was sent",
        "The process finishes the alterations that it has begun and takes no new ones.",
        "Send the request again; another process answers.",
        "Expected during a stop. Where it is frequent, the router does not follow /readyz.",
    ),
}
