"""Every problem that this service answers: a row for each code, in words for people."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple


class Words(NamedTuple):
    """What a page says of a problem.

    Attributes:
        title: A short name for it, the same each time.
        cause: What has happened, and what has not.
        action: What the caller does.
        operator: What those do who run the service; empty where it is the caller's to mend.
    """

    title: str
    cause: str
    action: str
    operator: str = ""


class Problem(NamedTuple):
    """The status of a problem's answers, and its page."""

    status: HTTPStatus
    words: Words


Rows = Mapping[tuple[str, int], Words]
"""By code and status."""


REQUEST_PROBLEMS: Final[Rows] = {
    ("unreadable-request", 400): Words(
        "The request cannot be read",
        "The body or the query is not what this service reads: not JSON, an unknown field or "
        "parameter, a repeated key, a value of the wrong type. Nothing is guessed, because a "
        "typo must not change a quota.",
        "Correct what is listed in errors and send the request again.",
    ),
    ("incomplete-body", 400): Words(
        "The body is incomplete",
        "The connection was closed before the end of the body. Nothing was read, nothing changed.",
        "Send the request again.",
    ),
    ("several-credentials", 400): Words(
        "More than one credential",
        "The request carries several Authorization headers, several certificates, or one of each, "
        "and it is not for this service to choose one.",
        "Send exactly one credential; look at what proxies in between add.",
    ),
    ("untrusted-identity-header", 400): Words(
        "A certificate in a header",
        "Headers such as Client-Cert and X-Forwarded-Client-Cert say which certificate a caller "
        "has. Anybody can write them, so they are no credential here. They are refused, so that "
        "none is taken for one; those of a trusted proxy are ignored.",
        "Leave the headers out that errors names, and show the certificate to this service itself.",
        "Where a proxy of yours sends them, name it in QUOTAS_TRUSTED_PROXIES; otherwise "
        "this is possibly credential guessing.",
    ),
    ("ambiguous-length", 400): Words(
        "The end of the body is ambiguous",
        "The request carries several Content-Length headers, or one beside Transfer-Encoding.",
        "Use one of the two; look at what proxies in between add.",
    ),
    ("preflight-refused", 400): Words(
        "Pages of this origin may not send such a request",
        "A browser asked on behalf of a page whether it may call, and its origin, its method or a "
        "header of it is not among those that may. The request itself was not sent.",
        "Ask those who run the service to name the page's origin; detail says what is refused.",
        "QUOTAS_CORS_ORIGINS names the origins.",
    ),
    ("malformed-http", 400): Words(
        "This is not HTTP",
        "What came over the connection is not HTTP/1.1, or is a request that HTTP forbids, such as "
        "one without a Host header; the connection was closed.",
        "Look at the client and at what proxies in between make of its request.",
        "Where it is frequent, something else than an HTTP client speaks to this port.",
    ),
    ("unsupported-transfer-coding", 501): Words(
        "The body is compressed in transit",
        "The request names another Transfer-Encoding than chunked. Nothing of its body was read; "
        "the connection was closed.",
        "Send the body as it is; look at what proxies in between make of it.",
    ),
    ("bad-page-token", 400): Words(
        "The page token is not valid",
        "The page token cannot be read, or it is of a query with other parameters.",
        "Begin again without page_token, and do not change the other parameters between pages.",
    ),
    ("unauthenticated", 401): Words(
        "No credential",
        "This route needs a caller: there are no anonymous ones.",
        "Send a credential of a kind that detail names, such as the header Authorization: Bearer "
        "followed by your token.",
    ),
    ("invalid-token", 401): Words(
        "The credential is not valid",
        "The Authorization header is malformed, or its token is unknown, has expired, or "
        "is not for this service.",
        "Check the token and its expiry with those who gave it to you.",
        "Many from one address are limited and counted in rate_limited_total.",
    ),
    ("login-failed", 401): Words(
        "The login failed",
        "The Authorization header is malformed, or the brokers do not accept this user with this "
        "password. The answer does not say which is wrong.",
        "Check user and password with a Kafka client, on the listener that this service uses.",
        "Five failures of one user from one address within a minute are answered 429 from then "
        "on; they are counted in rate_limited_total as logins.",
    ),
    ("unencrypted-password", 400): Words(
        "The password came unencrypted",
        "Authorization: Basic is taken over TLS alone, or from this very machine. The password "
        "was not looked at, and anybody in between may have read it.",
        "Change the password, and call with https.",
    ),
    ("invalid-certificate", 401): Words(
        "The client certificate is not valid here",
        "The certificate cannot be read, has expired, is of no accepted issuer, or no mapping rule "
        "makes a principal of its subject.",
        "Check the certificate with those who gave it to you; detail says what is wrong with it.",
        "QUOTAS_SSL_PRINCIPAL_MAPPING_RULES must be the rules of the brokers.",
    ),
    ("cluster-authorization-failed", 403): Words(
        "Not authorized on the cluster",
        "Kafka's own question was asked on Kafka's own resource: reading quotas needs "
        "DESCRIBE_CONFIGS, altering them ALTER_CONFIGS, and listing SCRAM credentials DESCRIBE on "
        "the Cluster kafka-cluster. The answer was no, as the broker's would be. Nothing was sent; "
        "the attempt is recorded.",
        "Ask for an ACL on the Cluster resource; it holds here within ten seconds for altering, a "
        "minute for reading.",
        "A rise of these shows in authz_total. The first attempt of a principal, action and "
        "address in a minute is a row of the audit log at once, further ones are one more row.",
    ),
    ("policy-violation", 403): Words(
        "The policy does not allow that",
        "The cluster's ACLs would let the caller, and the policy of this service, which narrows "
        "them, does not: an entity, a key, a value, a removal or a default entity is outside of "
        "what it covers. The request is refused as a whole, also with all_or_nothing false; "
        "nothing was sent, and the attempt is recorded.",
        "Leave out what errors names, or ask those who keep the policy to cover it.",
        "The file is QUOTAS_POLICY_FILE; SIGHUP reads it again, and policy_outdated tells whether "
        "that failed.",
    ),
    ("audit-permission-needed", 403): Words(
        "The rows of others need the audit permission",
        "With describe permission one sees the audit rows of one's own requests.",
        "Leave actor out, or ask for the audit permission (QUOTAS_AUDITORS).",
    ),
    ("service-account-not-authorized", 502): Words(
        "This service's own account is not authorized",
        "The caller may, and the account with which this service speaks to the brokers may not: "
        "it needs DESCRIBE_CONFIGS and ALTER_CONFIGS, and Describe to read ACLs, on the Cluster "
        "kafka-cluster.",
        "Ask those who run this service to add the missing ACL.",
        "Give the service's own account the ACL that the detail names.",
    ),
    ("no-authorizer", 403): Words(
        "The cluster has no authorizer",
        "Without an authorizer the cluster cannot say who may do what, so this service refuses.",
        "Enable an authorizer on the brokers, or accept the risk with "
        "QUOTAS_INSECURE_ALLOW_WITHOUT_AUTHORIZER=true.",
        "Set authorizer.class.name on the brokers.",
    ),
    ("not-found", 404): Words(
        "Nothing here",
        "There is no such path or record, or it is not yours to see.",
        "Check the address.",
    ),
    ("no-such-entity", 404): Words(
        "The entity has no quotas",
        "The key in the path names an entity without values, or is not an entity_key at all.",
        "Take the entity_key from GET /quotas, or set values with PUT.",
    ),
    ("method-not-allowed", 405): Words(
        "The path does not take this method",
        "The header Allow lists the methods that it takes.",
        "Use one of those.",
    ),
    ("not-acceptable", 406): Words(
        "No acceptable format",
        "The Accept header excludes every format of this answer.",
        "Accept application/json, application/x-ndjson, text/csv or application/yaml.",
    ),
    ("request-timeout", 408): Words(
        "The body did not arrive in time",
        "The connection is slow or the caller stopped sending. Nothing was read, nothing changed.",
        "Send the request again.",
        "Where callers are many and well connected, the process or a proxy before it is "
        "overloaded.",
    ),
    ("body-too-large", 413): Words(
        "The body is too large",
        "A body has at most 8 MiB.",
        "Split the request.",
    ),
    ("unsupported-media-type", 415): Words(
        "The body is not plain JSON",
        "Bodies are application/json in UTF-8, not compressed.",
        "Set Content-Type: application/json and leave Content-Encoding out.",
    ),
    ("headers-too-large", 431): Words(
        "The headers are too large",
        "The path, the query and all headers together have at most 32 KiB.",
        "Send fewer or shorter headers; split long queries.",
    ),
}


ALTERATION_PROBLEMS: Final[Rows] = {
    ("bad-idempotency-key", 400): Words(
        "The idempotency key is not one",
        "The request carries several Idempotency-Key headers, or one that is not 1 to 255 "
        "printable ASCII characters, bare or as a quoted string.",
        "Give one key, such as a UUID, and the same one again when the request is repeated.",
    ),
    ("bad-supersede", 400): Words(
        "Supersede does not name an alteration",
        "The header Supersede takes the alteration_id of one alteration.",
        "Give the id that the answer of unknown outcome carries, or leave the header out.",
    ),
    ("entity-busy", 409): Words(
        "Another alteration of the same entity is in flight",
        "Two alterations of one entity never run at once: their records would not say which came "
        "last. A plan also holds what it rests on. Nothing was sent.",
        "Send the request again after the time in Retry-After.",
        "Where it lasts, the outcome of the alteration named in the answer is unknown: it holds "
        "its entities until recovery is final, 95 s after the sending.",
    ),
    ("idempotency-key-running", 409): Words(
        "The request with this key still runs",
        "A request with the same idempotency key was recorded, and its outcome is still open. "
        "Nothing was sent for this one.",
        "Send the request again with the same key after the time in Retry-After, or look at the "
        "address in the header Location.",
    ),
    ("outcome-superseded", 409): Words(
        "Not everything that was sent was applied",
        "The answer to the alteration of this idempotency key was lost, and what was found later "
        "is something else than what was asked for, or another alteration took over before that. "
        "The results say what was found of each entity.",
        "Read the values again, decide, and send a new request with another key.",
        "Investigate observed_other in the audit rows of the entity: another tool changes it.",
    ),
    ("expectation-failed", 412): Words(
        "The expected values do not hold",
        "The request named the values that must hold now, and they do not. Nothing was applied "
        "for any entity; errors carry the values that hold.",
        "Read the values again, decide, and send a new request.",
    ),
    ("invalid-request", 422): Words(
        "The request breaks a rule",
        "The request can be read, and its content breaks a rule of Kafka or of this service. "
        "Nothing was applied. Where a broker would have refused it too, kafka_error names its "
        "error.",
        "Correct what is listed in errors and send the request again.",
    ),
    ("refused-by-broker", 422): Words(
        "The broker refused the request",
        "The request passed this service's rules and the broker refused it, for the reasons in "
        "errors. Nothing was applied.",
        "Correct what is listed in errors and send the request again.",
    ),
    ("no-alterations", 422): Words(
        "No alterations",
        "The request alters nothing. Kafka would answer an empty request with success, even to a "
        "caller who may not alter; this service does not.",
        "Name at least one entity with at least one operation.",
    ),
    ("too-many-changes", 422): Words(
        "Too many changes at once",
        "The controller takes at most 10,000 changed keys in one request.",
        "Split the request.",
    ),
    ("too-large", 422): Words(
        "Too many bytes of changes at once",
        "The records of one request would have over 2 MiB; from 8 MiB on a controller resigns.",
        "Split the request.",
    ),
    ("idempotency-key-reused", 422): Words(
        "The idempotency key belongs to another request",
        "The key was used for a request with another body. Nothing was done.",
        "Choose a new key for each new request; repeat a request with the body unchanged.",
    ),
    ("nothing-to-revert", 422): Words(
        "There is nothing to take back",
        "As far as is recorded, that alteration has changed nothing.",
        "Nothing is to be done.",
    ),
    ("not-concluded", 422): Words(
        "The outcome is not certain yet",
        "An alteration can be reverted once the outcome of each of its entities is final.",
        "Look at the alteration until its outcome is final, then revert it.",
    ),
    ("before-unknown", 409): Words(
        "What held before is not known",
        "The process that sent that alteration ended before it recorded what it had read, and "
        "recovery saw what holds, not what held. Nothing was done.",
        "Look at the history of the entity, and set the values that should hold with an alteration "
        "of your own.",
    ),
    ("cannot-be-restored", 422): Words(
        "What held before cannot be written",
        "Another tool had stored a value that this service does not write, such as NaN.",
        "Set the values that should hold with an alteration of your own.",
    ),
    ("outcome-not-recorded", 503): Words(
        "Answered by the cluster, not yet recorded",
        "The cluster has answered, and the audit log could not store the answer yet. It will.",
        "Do not repeat the request. Look at the address in the header Location for the outcome.",
        "Restore Postgres before stopping the process, which has the outcome in its memory; if it "
        "dies all the same, recovery finds the outcome in the cluster.",
    ),
    ("outcome-unknown", 504): Words(
        "The outcome is unknown",
        "The alteration was sent and no definite answer came: it may have been applied, now or a "
        "little later.",
        "Do not repeat the request without an idempotency key. Look at the address in the header "
        "Location for the outcome.",
        "Recovery observes the cluster within seconds and is final 95 s after the sending. Where "
        "these are frequent, look at the controller.",
    ),
}


SERVICE_PROBLEMS: Final[Rows] = {
    ("rate-limited", 429): Words(
        "Over a rate limit of this service",
        "One caller sends more requests a second, or has more of them running at a time, than "
        "this service lets one caller have. Nothing was done.",
        "Send the request again after the time in Retry-After, and fewer of them: several "
        "entities fit in one alteration.",
        "See which caller it is in the log. The limits are QUOTAS_READS_PER_S, "
        "QUOTAS_ALTERATIONS_PER_S, QUOTAS_REQUESTS_AT_ONCE, "
        "QUOTAS_AUTHENTICATION_FAILURES_PER_S and QUOTAS_PUBLIC_REQUESTS_PER_S.",
    ),
    ("too-many-requests", 429): Words(
        "Too many requests",
        "A rate limit of this service was reached, or the broker throttles.",
        "Send the request again after the time in Retry-After.",
        "See which caller it is in the log; a broker that throttles has a quota for the service's "
        "own account.",
    ),
    ("throttled-by-broker", 429): Words(
        "The broker throttles",
        "The account with which this service speaks to the brokers has used up a quota of its "
        "own. Nothing was applied.",
        "Send the request again after the time in Retry-After.",
        "Raise the controller_mutation_rate of the service's own account, or remove it.",
    ),
    ("internal-error", 500): Words(
        "A fault of this service",
        "Something happened that should not: it is in the service's log under the request id.",
        "Report the request id. Before repeating an alteration, look the present values up.",
        "A bug: find the line fault by the request id.",
    ),
    ("unsupported-broker-version", 501): Words(
        "The broker has no quota interface",
        "Quotas can be described and altered since Apache Kafka 2.6.",
        "Upgrade the brokers.",
        "Upgrade the brokers.",
    ),
    ("broker-error", 502): Words(
        "The broker answered with an error",
        "The broker's own error and text are in kafka_error and detail.",
        "See the broker's log.",
        "The broker's own error is in kafka_error and detail; see its log.",
    ),
    ("broker-answer-too-large", 502): Words(
        "The broker's answer is too large",
        "The answer has more bytes than this service reads.",
        "Narrow the filter.",
        "Ask callers to narrow their filters.",
    ),
    ("broker-answer-unreadable", 502): Words(
        "The broker's answer cannot be read",
        "What came from the broker's address does not follow Kafka's protocol.",
        "Check the bootstrap servers and what stands between them and this service.",
        "Something that is not a broker answers at a broker's address: check "
        "QUOTAS_KAFKA_BOOTSTRAP_SERVERS and the advertised listeners.",
    ),
    ("not-sent", 503): Words(
        "A dependency cannot be reached; nothing was sent",
        "The cluster, or the database that keeps the audit log, does not answer. Nothing is sent "
        "that could not be recorded, so nothing changed.",
        "Send the request again later; it is safe.",
        "See the detail: the cluster or the database. Nothing was sent.",
    ),
    ("wrong-cluster", 503): Words(
        "Another cluster answers",
        "This service is for one cluster, and the brokers that answer are of another. Nothing was "
        "sent, and nothing that was seen of the first cluster is displayed or concluded.",
        "Tell those who run this service; it is safe to send the request again.",
        "Check what QUOTAS_KAFKA_BOOTSTRAP_SERVERS leads to, and QUOTAS_CLUSTER_ID. The service "
        "goes on when the first cluster is back; to serve the other one, restart it.",
    ),
    ("cluster-unreachable", 503): Words(
        "No broker answers; nothing was sent",
        "No broker could be reached, or none let this service log in.",
        "Send the request again later; it is safe.",
        "Check brokers, network and QUOTAS_KAFKA_…; the detail says what failed.",
    ),
    ("acl-source-unreachable", 503): Words(
        "The cluster's ACLs cannot be had",
        "Without ACLs that are young enough nobody's rights can be judged, so nobody passes. "
        "Nothing was sent.",
        "Send the request again later; it is safe.",
        "Nobody can be judged, so nobody passes. Check the brokers, and that the service's own "
        "account has Describe.",
    ),
    ("identity-provider-unavailable", 503): Words(
        "The identity provider cannot be asked",
        "The keys that tokens are signed with are unknown, or older than an hour, and the identity "
        "provider does not tell them. Nothing was sent, nothing changed.",
        "Try again in half a minute. A token of the tokens file is still accepted.",
        "Look at QUOTAS_OIDC_… and at authn_jwks_fetch_total; the log says why a fetch failed.",
    ),
    ("audit-log-unavailable", 503): Words(
        "The audit log cannot be written; nothing was sent",
        "The database that keeps the audit log does not answer. What cannot be recorded is not "
        "sent, so nothing changed. Reading quotas goes on. An alteration_id says that it fell "
        "silent over the commit: the log then has it as not sent, or not at all.",
        "Send the request again later; it is safe.",
        "The log line says why; often migrate was not run or the disk is full. Reads go on.",
    ),
    ("query-too-slow", 503): Words(
        "The log was not read in time",
        "Postgres works, and has ended this read because it took too long. Nothing was sent.",
        "Ask for less: a smaller page, a shorter time with since and until, one entity or actor.",
        "Where it is frequent, see whether the log's indexes are there and the server is busy.",
    ),
    ("too-many-connections", 503): Words(
        "Too many connections",
        "This process holds as many connections as it may. Nothing was read.",
        "Send the request again after the time in Retry-After; keep connections open and reuse "
        "them, and close idle ones.",
        "See who holds them; QUOTAS_MAX_CONNECTIONS is the limit, and the process needs that many "
        "file descriptors.",
    ),
    ("too-many-sessions", 503): Words(
        "Too many callers are logged in",
        "This process holds as many sessions of callers who came with a user and a password as it "
        "may and all of them are in use, or too many are being logged in. Nothing was sent.",
        "Send the request again after the time in Retry-After.",
        "There are 256 sessions at most, and 64 logins in progress; see authn_total for many that "
        "fail, or start another process.",
    ),
    ("stopping", 503): Words(
        "This process is stopping; nothing was sent",
        "The process finishes the alterations that it has begun and takes no new ones.",
        "Send the request again; another process answers.",
        "Expected during a stop. Where it is frequent, the router does not follow /readyz.",
    ),
}


ANALYTICS_PROBLEMS: Final[Rows] = {
    ("no-run", 404): Words(
        "No run of the pipeline yet",
        "These results come from the pipeline, and none of its runs has published them yet.",
        "Ask those who run the service when the first one is due.",
        "Have a scheduler start `quota-pipeline run --pg` from time to time.",
    ),
}


PLAN_PROBLEMS: Final[Rows] = {
    ("plan-outdated", 412): Words(
        "The cluster has changed since the plan was made",
        "A plan is applied only while the values that it was made from, and the owners of the keys "
        "that it changes, are as they were. Something has changed, so nothing was applied; errors "
        "carry the values that hold.",
        "Make a new plan, look at it, and apply that one.",
    ),
    ("plan-expired", 410): Words(
        "The plan has expired",
        "A plan can be applied for 24 hours. Nothing was applied.",
        "Make a new plan and apply that one.",
    ),
    ("too-many-plans", 429): Words(
        "Too many plans can still be applied",
        "The plans of one principal that have not expired are bounded, in number and in size. "
        "Nothing was stored.",
        "Make fewer plans, or smaller ones, or wait: a plan expires after 24 hours.",
    ),
    ("owner-conflict", 409): Words(
        "Another owner holds what the plan would change",
        "A key belongs to the owner that applied it last from a plan. This plan would change keys "
        "of others; each is in errors with its owner. Nothing was applied.",
        'Leave those keys out of the document, or apply with "force": true, which takes them over '
        "and is recorded in the audit log.",
    ),
}


PROBLEMS: Final[Mapping[str, Problem]] = {
    code: Problem(HTTPStatus(status), words)
    for rows in (
        REQUEST_PROBLEMS,
        ALTERATION_PROBLEMS,
        SERVICE_PROBLEMS,
        ANALYTICS_PROBLEMS,
        PLAN_PROBLEMS,
    )
    for (code, status), words in rows.items()
}
"""By code."""
