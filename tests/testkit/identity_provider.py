"""An identity provider on this machine: keys, a login page, and codes for tokens with PKCE.

Source: OpenID Connect Core 1.0, 3.1; RFC 6749, 6; RFC 7636, 4.
"""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from tests.testkit.event_loops import Silent, served

KEY = ec.generate_private_key(ec.SECP256R1())
REDIRECT_PATH = "/ui/signed-in"


@dataclass
class Provider:
    """What it has handed out, and what it has refused.

    Attributes:
        client_id: Its only client, which has no secret.
        codes: Those not yet used: the query of the login, with the user as ``sub``.
        refused: Why no token was given.
        gives_refresh_tokens: Whether it does so for the scope ``offline_access``.
        refresh_tokens: Those not yet used, with their login.
    """

    client_id: str
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    gives_refresh_tokens: bool = True
    refresh_tokens: dict[str, dict[str, str]] = field(default_factory=dict)

    def code(self, query: dict[str, str], user: str) -> str:
        code = secrets.token_urlsafe()
        self.codes[code] = {**query, "sub": user}
        return code

    def tokens(self, issuer: str, form: dict[str, str]) -> dict[str, str] | None:
        """Return the tokens for a code or a refresh token, each good for once.

        Null where the request does not fit its login.
        """
        is_refresh = form.get("grant_type") == "refresh_token"
        login = self._refreshed(form) if is_refresh else self._logged_in(form)
        if login is None:
            return None
        found = {"id_token": self.signed(issuer, login["sub"], nonce=login["nonce"])}
        if self.gives_refresh_tokens and "offline_access" in login["scope"].split():
            found["refresh_token"] = secrets.token_urlsafe()
            self.refresh_tokens[found["refresh_token"]] = login
        return found

    def signed(self, issuer: str, user: str, *, within_s: int = 600, **claims: str) -> str:
        """Return a token of a user that is good for so long; of the past where that is negative."""
        now = int(time.time())
        times = {"iat": min(now, now + within_s), "exp": now + within_s}
        body = {"iss": issuer, "aud": self.client_id, "sub": user, **times, **claims}
        return jwt.encode(body, KEY, "ES256", headers={"kid": "one"})

    def _refreshed(self, form: dict[str, str]) -> dict[str, str] | None:
        login = self.refresh_tokens.pop(form.get("refresh_token", ""), {})
        is_client = form.get("client_id") == self.client_id
        return self._checked(login, {"refresh_token": bool(login), "client_id": is_client})

    def _logged_in(self, form: dict[str, str]) -> dict[str, str] | None:
        login = self.codes.pop(form.get("code", ""), {})
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        checks = {
            "code": bool(login),
            "grant_type": form.get("grant_type") == "authorization_code",
            "client_id": form.get("client_id") == self.client_id == login.get("client_id"),
            "redirect_uri": form.get("redirect_uri") == login.get("redirect_uri"),
            "verifier": login.get("code_challenge") == challenge,
            "method": login.get("code_challenge_method") == "S256",
        }
        return self._checked(login, checks)

    def _checked(self, login: dict[str, str], checks: dict[str, bool]) -> dict[str, str] | None:
        failed = [name for name, holds in checks.items() if not holds]
        self.refused += failed
        return None if failed else login


class _Handler(Silent, BaseHTTPRequestHandler):
    def __init__(self, provider: Provider, *args: Any) -> None:
        self.provider = provider
        super().__init__(*args)

    @property
    def issuer(self) -> str:
        return f"http://{self.headers['Host']}"

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, _first(urlsplit(self.path).query)
        if path == "/.well-known/openid-configuration":
            names = {"authorization_endpoint": "authorize", "token_endpoint": "token"}
            names["jwks_uri"] = "keys"
            urls = {name: f"{self.issuer}/{end}" for name, end in names.items()}
            self._json({"issuer": self.issuer, **urls})
        elif path == "/keys":
            public = jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
            self._json({"keys": [{**public, "kid": "one", "use": "sig"}]})
        elif path == "/authorize":
            hidden = "".join(
                f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
                for name, value in query.items()
            )
            self._send(
                "text/html",
                f"<!doctype html><title>Log in</title><form method=post>{hidden}<label>Name "
                '<input name="user" autofocus></label><button>Log in</button></form>',
            )
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        form = _first(self.rfile.read(length).decode())
        if urlsplit(self.path).path == "/authorize":
            back = urlsplit(form["redirect_uri"])
            assert back.path == REDIRECT_PATH
            answer = {"state": form["state"], "code": self.provider.code(form, form["user"])}
            if not form["user"]:
                answer = {"state": form["state"], "error": "access_denied"}
            self.send_response(303)
            self.send_header("Location", f"{form['redirect_uri']}?{urlencode(answer)}")
            self.end_headers()
            return
        tokens = self.provider.tokens(self.issuer, form)
        self._json(tokens or {"error": "invalid_grant"}, 400 if tokens is None else 200)

    def _json(self, document: Any, status: int = 200) -> None:
        self._send("application/json", json.dumps(document), status)

    def _send(self, media_type: str, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(text.encode())


def _first(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}


@contextmanager
def identity_provider(client_id: str) -> Iterator[tuple[str, Provider]]:
    """Run one with one client until the block ends; return its issuer and what it knows."""
    provider = Provider(client_id)
    with served(partial(_Handler, provider)) as url:
        yield url, provider
