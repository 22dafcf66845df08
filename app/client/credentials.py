"""Credentials as the service takes them: a bearer token, a password, a client certificate."""

import ssl
from pathlib import Path

from app.client.configuration import Configuration
from app.client.entities import visible
from app.client.errors import UsageError


def authorization(configured: Configuration) -> tuple[str, bytes] | None:
    """Return the ``Authorization`` header, or null where there is none; may ask for a password.

    Raises:
        UsageError: A file that cannot be read, or holds something else.
    """
    if configured.token_file is not None:
        return ("Authorization", b"Bearer " + _line(configured.token_file, "--token-file"))
    if configured.user is not None:
        return ("Authorization", b"Basic " + _basic(configured.user, configured.password_file))
    return None


def _basic(user: str, password_file: Path | None) -> bytes:
    from base64 import b64encode  # noqa: PLC0415 - few calls need it

    if ":" in user:
        raise UsageError("--user: a user name of Basic authentication holds no colon (RFC 7617).")
    if password_file is not None:
        password = _line(password_file, "--password-file")
    else:
        password = _asked(user)
    return b64encode(user.encode() + b":" + password)


def _asked(user: str) -> bytes:
    import getpass  # noqa: PLC0415 - few calls need it
    import warnings  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(f"Password of {visible(user)}: ").encode()
        except (EOFError, getpass.GetPassWarning):
            message = "There is no terminal to ask for a password: give --password-file."
            raise UsageError(message) from None


def _line(file: Path, option: str) -> bytes:
    try:
        text = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {file} cannot be read: {error}.") from error
    text = text.strip() if option == "--token-file" else text
    if not text or not text.isprintable() or (option == "--token-file" and not text.isascii()):
        raise UsageError(f"{option} {file} does not hold one line of text.")
    return text.encode()


def tls(configured: Configuration) -> ssl.SSLContext:
    """Return what ``https`` is checked with: the usual authorities, or those of ``--cacert``.

    For ``http`` it trusts nobody and is not used.

    Raises:
        UsageError: A file that cannot be read, or holds something else.
    """
    if not configured.server.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = ssl.create_default_context(cafile=configured.cacert)
        if configured.cert is not None:
            context.load_cert_chain(configured.cert, configured.key)
    except OSError as error:
        files = [configured.cacert, configured.cert, configured.key]
        named = ", ".join(str(file) for file in files if file is not None)
        raise UsageError(f"The certificates cannot be used ({named}): {error}.") from error
    return context
