"""The host of a caller, as ACLs name it."""

from app.domain.addresses import java_host_text
from app.domain.errors import UnauthenticatedError


def host_of(peer: str) -> str:
    """Return the address in Java's text form.

    Raises:
        UnauthenticatedError: It is no address.
    """
    try:
        return java_host_text(peer)
    except ValueError:
        raise UnauthenticatedError("The caller's address is not known, so no rule fits.") from None
