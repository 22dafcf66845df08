"""What can be wrong with an alteration, in words for people."""

from collections.abc import Mapping
from typing import Final

from app.http.problem_text import ProblemText

ALTERATION_PROBLEMS: Final[Mapping[str, ProblemText]] = {
    "bad-idempotency-key": ProblemText(
        "The idempotency key is not one",
        "The request carries several Idempotency-Key headers, or one that is not 1 to 255 "
        "printable ASCII characters, bare or as a quoted string.",
        "Give one key, such as a UUID, and the same one again when the request is repeated.",
    ),
    "bad-supersede": ProblemText(
        "Supersede does not name an alteration",
        "The header Supersede takes the alteration_id of one alteration.",
        "Give the id that the answer of unknown outcome carries, or leave the header out.",
    ),
    "entity-busy": ProblemText(
        "Another alteration of the same entity is in flight",
        "Two alterations of one entity never run at once: their record would not say which one "
        "the cluster kept. Nothing was sent.",
        "Send the request again after the time in Retry-After.",
        "Where it lasts, the outcome of the alteration named in the answer is unknown: it holds "
        "its entities until recovery is final, 95 s after the sending.",
    ),
    "idempotency-key-running": ProblemText(
        "The request with this key still runs",
        "A request with the same idempotency key was recorded, and what became of it is not known "
        "yet. Nothing was sent for this one.",
        "Send the request again with the same key after the time in Retry-After, or look at the "
        "address in the header Location.",
    ),
    "outcome-superseded": ProblemText(
        "Not everything that was sent was applied",
        "The answer to the alteration of this idempotency key was lost, and what was found later "
        "is something else than what was asked for, or another alteration took over before that. "
        "The results say what was found of each entity.",
        "Read the values again, decide, and send a new request with another key.",
        "observed_other wants a look at the audit rows of the entity: somebody else changes it.",
    ),
    "expectation-failed": ProblemText(
        "The expected values do not hold",
        "The request named the values that must hold now, and they do not. Nothing was applied "
        "for any entity; errors carry the values that hold.",
        "Read the values again, decide, and send a new request.",
    ),
    "invalid-request": ProblemText(
        "The request breaks a rule",
        "The request can be read, and its content breaks a rule of Kafka or of this service. "
        "Nothing was applied. Where a broker would have refused it too, kafka_error names its "
        "error.",
        "Correct every place listed in errors and send the request again.",
    ),
    "refused-by-broker": ProblemText(
        "The broker refused the request",
        "The request passed this service's rules and the broker refused it, for the reasons in "
        "errors. Nothing was applied.",
        "Correct every place listed in errors and send the request again.",
    ),
    "no-alterations": ProblemText(
        "No alterations",
        "The request alters nothing. Kafka would answer an empty request with success, even to "
        "somebody who may not alter; this service does not.",
        "Name at least one entity with at least one operation.",
    ),
    "too-many-changes": ProblemText(
        "Too many changes at once",
        "The controller takes at most 10,000 changed keys in one request.",
        "Split the request.",
    ),
    "too-large": ProblemText(
        "Too many bytes of changes at once",
        "The records of one request would have over 2 MiB; from 8 MiB on a controller resigns.",
        "Split the request.",
    ),
    "idempotency-key-reused": ProblemText(
        "The idempotency key belongs to another request",
        "The key was used for a request with another body. Nothing was done.",
        "Choose a new key for each new request; repeat a request with the body unchanged.",
    ),
    "nothing-to-revert": ProblemText(
        "There is nothing to take back",
        "Nothing of that alteration is known to have changed the cluster.",
        "Nothing is to be done.",
    ),
    "not-concluded": ProblemText(
        "The outcome is not known yet",
        "An alteration can be taken back once it is known what became of each of its entities.",
        "Look at the alteration until its outcome is final, then revert it.",
    ),
    "cannot-be-restored": ProblemText(
        "What held before cannot be written",
        "Another tool had stored a value that this service does not write, such as NaN.",
        "Set the values that should hold with an alteration of your own.",
    ),
    "outcome-not-recorded": ProblemText(
        "Answered by the cluster, not yet recorded",
        "The cluster has answered, and the audit log could not store the answer yet. It will.",
        "Do not repeat the request. Look at the address in the header Location for the outcome.",
        "Restore Postgres before stopping the process, which has the outcome in its memory; if it "
        "dies all the same, recovery finds the outcome in the cluster.",
    ),
    "outcome-unknown": ProblemText(
        "The outcome is unknown",
        "The alteration was sent and no definite answer came: it may have been applied, now or a "
        "little later.",
        "Do not repeat the request without an idempotency key. Look at the address in the header "
        "Location for the outcome.",
        "Recovery observes the cluster within seconds and is final 95 s after the sending. Where "
        "these are frequent, look at the controller.",
    ),
}
