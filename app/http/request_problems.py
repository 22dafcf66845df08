"""What can be wrong with a request before its content matters, in words for people."""

from collections.abc import Mapping
from typing import Final

from app.http.problem_text import ProblemText

REQUEST_PROBLEMS: Final[Mapping[str, ProblemText]] = {
    "unreadable-request": ProblemText(
        "The request cannot be read",
        "The body or the query is not what this service reads: not JSON, an unknown field or "
        "parameter, a key given twice, a value of the wrong type. Nothing is guessed, because a "
        "typo must not change a quota.",
        "Correct every place listed in errors and send the request again.",
    ),
    "incomplete-body": ProblemText(
        "The body is incomplete",
        "The connection was closed before the end of the body. Nothing was read, nothing changed.",
        "Send the request again.",
    ),
    "several-credentials": ProblemText(
        "More than one credential",
        "The request carries several Authorization headers, several certificates, or one of each, "
        "and it is not for this service to choose one.",
        "Send exactly one credential; look at what proxies on the way add.",
    ),
    "untrusted-identity-header": ProblemText(
        "A certificate in a header, from no trusted proxy",
        "Headers such as Client-Cert and X-Forwarded-Client-Cert say which certificate was shown. "
        "Anybody can write them, so they are believed from trusted proxies only, and refused from "
        "everybody else.",
        "Leave the headers out that errors names.",
        "Where a proxy of yours sends them, name it in QUOTAS_TRUSTED_PROXIES; otherwise somebody "
        "tries.",
    ),
    "ambiguous-length": ProblemText(
        "The end of the body is ambiguous",
        "The request carries several Content-Length headers, or one beside Transfer-Encoding.",
        "Use one of the two; look at what proxies on the way add.",
    ),
    "malformed-http": ProblemText(
        "This is not HTTP",
        "What came over the connection is not HTTP/1.1, or is a request that HTTP forbids, such as "
        "one without a Host header; the connection was closed.",
        "Look at the client and at what proxies on the way make of its request.",
        "Where it is frequent, something else than an HTTP client speaks to this port.",
    ),
    "unsupported-transfer-coding": ProblemText(
        "The body is compressed on its way",
        "The request names another Transfer-Encoding than chunked. Nothing of its body was read; "
        "the connection was closed.",
        "Send the body as it is; look at what proxies on the way make of it.",
    ),
    "bad-page-token": ProblemText(
        "The page token is not valid",
        "The page token cannot be read, or it is of a query with other parameters.",
        "Begin again without page_token, and do not change the other parameters between pages.",
    ),
    "unauthenticated": ProblemText(
        "No credential",
        "This route needs a caller: there are no anonymous ones.",
        "Send a credential of a kind that detail names, such as the header Authorization: Bearer "
        "followed by your token.",
    ),
    "invalid-token": ProblemText(
        "The credential is not valid",
        "The Authorization header is malformed, or its token is unknown, has expired, or "
        "is not for this service.",
        "Check the token and its expiry with those who gave it to you.",
        "Many from one address are limited and counted in rate_limited_total.",
    ),
    "login-failed": ProblemText(
        "The login failed",
        "The Authorization header is malformed, or the brokers do not accept this user with this "
        "password. Which of the two is wrong is not told.",
        "Check user and password with a Kafka client, on the listener that this service uses.",
        "Five failures of one user from one address within a minute are answered 429 from then "
        "on; they are counted in rate_limited_total as logins.",
    ),
    "unencrypted-password": ProblemText(
        "The password came unencrypted",
        "Authorization: Basic is taken over TLS alone, or from this very machine. The password "
        "was not looked at, and everybody on the way may know it now.",
        "Change the password, and call with https.",
    ),
    "invalid-certificate": ProblemText(
        "The client certificate is not valid here",
        "The certificate cannot be read, has expired, is of no accepted issuer, or no mapping rule "
        "makes a principal of its subject.",
        "Check the certificate with those who gave it to you; detail says what is wrong with it.",
        "QUOTAS_SSL_PRINCIPAL_MAPPING_RULES must be the rules of the brokers.",
    ),
    "cluster-authorization-failed": ProblemText(
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
    "policy-violation": ProblemText(
        "The policy does not allow that",
        "The cluster's ACLs would let the caller, and the policy of this service, which narrows "
        "them, does not: an entity, a key, a value, a removal or a default entity is outside of "
        "what it covers. The request is refused as a whole, also with all_or_nothing false; "
        "nothing was sent, and the attempt is recorded.",
        "Leave out what errors names, or ask those who keep the policy to cover it.",
        "The file is QUOTAS_POLICY_FILE; SIGHUP reads it again, and policy_outdated tells whether "
        "that failed.",
    ),
    "audit-permission-needed": ProblemText(
        "The rows of others need the audit permission",
        "With describe permission one sees the audit rows of one's own requests.",
        "Leave actor out, or ask for the audit permission (QUOTAS_AUDITORS).",
    ),
    "service-account-not-authorized": ProblemText(
        "This service's own account is not authorized",
        "The caller may, and the account with which this service speaks to the brokers may not: "
        "it needs DESCRIBE_CONFIGS and ALTER_CONFIGS, and Describe to read ACLs, on the Cluster "
        "kafka-cluster.",
        "Ask those who run this service to add the missing ACL.",
        "Give the service's own account the ACL that the detail names.",
    ),
    "no-authorizer": ProblemText(
        "The cluster has no authorizer",
        "Without an authorizer the cluster cannot say who may do what, so this service refuses.",
        "Enable an authorizer on the brokers, or accept the risk with "
        "QUOTAS_INSECURE_ALLOW_WITHOUT_AUTHORIZER=true.",
        "Set authorizer.class.name on the brokers.",
    ),
    "not-found": ProblemText(
        "Nothing here",
        "There is no such path or record, or it is not yours to see.",
        "Check the address.",
    ),
    "method-not-allowed": ProblemText(
        "The path does not take this method",
        "The header Allow lists the methods that it takes.",
        "Use one of those.",
    ),
    "not-acceptable": ProblemText(
        "No acceptable format",
        "The Accept header excludes every format of this answer.",
        "Accept application/json, application/x-ndjson, text/csv or application/yaml.",
    ),
    "request-timeout": ProblemText(
        "The body did not arrive in time",
        "The connection is slow or the caller stopped sending. Nothing was read, nothing changed.",
        "Send the request again.",
        "Where callers are many and well connected, the process or a proxy before it is "
        "overloaded.",
    ),
    "body-too-large": ProblemText(
        "The body is too large",
        "A body has at most 8 MiB.",
        "Split the request.",
    ),
    "unsupported-media-type": ProblemText(
        "The body is not plain JSON",
        "Bodies are application/json in UTF-8, not compressed.",
        "Set Content-Type: application/json and leave Content-Encoding out.",
    ),
    "headers-too-large": ProblemText(
        "The headers are too large",
        "The path, the query and all headers together have at most 32 KiB.",
        "Send fewer or shorter headers; split long queries.",
    ),
}
