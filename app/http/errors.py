"""What can go wrong with a request before its content matters."""

from app.domain.errors import (
    QuotaError,
    Retry,
    TooManyRequestsError,
    UnauthenticatedError,
    UnreadableRequestError,
)


class InvalidTokenError(UnauthenticatedError):
    """A credential was presented, and it is not valid."""

    default_code = "invalid-token"


class InvalidCertificateError(UnauthenticatedError):
    """A client certificate was presented, and it is nobody's here."""

    default_code = "invalid-certificate"


class LoginFailedError(UnauthenticatedError):
    """The brokers do not accept the user with this password."""

    default_code = "login-failed"


class UnencryptedPasswordError(UnreadableRequestError):
    """A password came over a network without TLS; it was not looked at."""

    default_code = "unencrypted-password"


class UntrustedIdentityError(UnreadableRequestError):
    """A header names the caller's certificate, and who sends it is no trusted proxy."""

    default_code = "untrusted-identity-header"
    method = "certificate-header"


class PreflightRefusedError(UnreadableRequestError):
    """A page of another origin may not send what its browser asks for."""

    default_code = "preflight-refused"


class NotAcceptableError(QuotaError):
    """None of the formats that the caller accepts is produced here."""

    default_code = "not-acceptable"


class RequestTimeoutError(QuotaError):
    """The body did not arrive in time; nothing was read from it."""

    default_code = "request-timeout"

    def __post_init__(self) -> None:
        self.retry = Retry.SAFE
        super().__post_init__()


class BodyTooLargeError(QuotaError):
    """The body is larger than this service reads."""

    default_code = "body-too-large"


class UnsupportedMediaTypeError(QuotaError):
    """The body is not JSON in UTF-8, or it is compressed."""

    default_code = "unsupported-media-type"


class HeadersTooLargeError(QuotaError):
    """The request line and the headers are too large together."""

    default_code = "headers-too-large"


class RateLimitedError(TooManyRequestsError):
    """The caller is over a rate limit of this service; nothing was done."""

    default_code = "rate-limited"

    def __post_init__(self) -> None:
        self.retry = Retry.SAFE
        super().__post_init__()
