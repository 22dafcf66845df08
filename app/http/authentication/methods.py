"""The ways of saying who calls, of which a request takes exactly one."""

from collections.abc import Sequence
from typing import Final, Protocol

from starlette.types import Scope

from app.domain.entities import Caller
from app.domain.errors import UnauthenticatedError, UnreadableRequestError, Violation
from app.http.authentication.bearer import Bearer
from app.http.authentication.identity_headers import refuse_forged_identity
from app.http.authentication.presented import Presented
from app.http.errors import InvalidTokenError

_CODE: Final = "several-credentials"
_SEVERAL: Final = "Show exactly one credential."


class Method(Protocol):
    """One kind of credential.

    Attributes:
        name: How metrics name it where its credential is refused.
        advice: What a caller without a credential may send, as a sentence without its end.
        scheme: The same for ``WWW-Authenticate``.
    """

    name: str
    advice: str
    scheme: str

    def is_shown(self, presented: Presented) -> bool:
        """Tell whether the request shows such a credential, good or bad."""
        ...

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller whose credential is shown.

        Raises:
            UnauthenticatedError: The credential is not good.
            NotSentError: What is needed to judge it cannot be had.
        """
        ...


class Methods:
    """Asks the one method whose credential a request shows.

    Args:
        methods: In the order in which their advice is given.
    """

    def __init__(self, methods: Sequence[Method]) -> None:
        self._methods = tuple(methods)
        self._bearer = next((one for one in methods if isinstance(one, Bearer)), None)

    def plain_caller(self, scope: Scope) -> Caller | None:
        """Return the caller of a request of the most frequent kind; see ``Bearer``."""
        return None if self._bearer is None else self._bearer.plain_caller(scope)

    async def authenticate(self, presented: Presented) -> Caller:
        """Return the caller.

        Raises:
            UnreadableRequestError: Several credentials are shown, or one in another's name.
            UnauthenticatedError: None is, or it is not good.
            NotSentError: What is needed to judge it cannot be had.
        """
        refuse_forged_identity(presented)
        try:
            return await self._authenticated(presented)
        except UnauthenticatedError as refusal:
            first = [one.scheme for one in self._methods if one.name == refusal.method]
            others = [one.scheme for one in self._methods]
            refusal.schemes = tuple(dict.fromkeys([*first, *others]))
            raise

    async def _authenticated(self, presented: Presented) -> Caller:
        shown = [one for one in self._methods if one.is_shown(presented)]
        if len(shown) > 1:
            violations = [Violation("authorization", _CODE, _SEVERAL)]
            raise UnreadableRequestError(_SEVERAL, code=_CODE, violations=violations)
        if shown:
            return await _judged(shown[0], presented)
        first, *others = (one.advice for one in self._methods)
        advice = ", or ".join([first, *(one[0].lower() + one[1:] for one in others)]) + "."
        if "authorization" in presented.headers:
            raise InvalidTokenError(f"The Authorization header is of no accepted kind. {advice}")
        raise UnauthenticatedError(advice)


async def _judged(method: Method, presented: Presented) -> Caller:
    try:
        return await method.authenticate(presented)
    except UnauthenticatedError as refusal:
        refusal.method = method.name
        raise
