"""The quota protocol by hand as a SASL principal: the judge of whom the service lets pass."""

import socket

from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from tests.testkit.raw_quotas import DEADLINE_S, RawQuotas


class RawAnonymous(RawQuotas):
    """One connection to a PLAINTEXT listener, from an address of choice: ``User:ANONYMOUS``."""

    def __init__(self, bootstrap_servers: str, host: str) -> None:
        address, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection(
            (address, int(port)), DEADLINE_S, source_address=(host, 0)
        )


class RawPrincipal(RawAnonymous):
    """One connection to a SASL_PLAINTEXT listener, logged in with PLAIN, from an address of choice.

    Source: RFC 4616.
    """

    def __init__(self, bootstrap_servers: str, user: str, password: str, host: str) -> None:
        super().__init__(bootstrap_servers, host)
        handshake = self._ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        assert handshake.error_code == 0, handshake
        proof = f"\0{user}\0{password}".encode()
        answer = self._ask(SaslAuthenticateRequest(auth_bytes=proof), SaslAuthenticateResponse)
        assert answer.error_code == 0, answer
