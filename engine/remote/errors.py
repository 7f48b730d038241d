"""What goes wrong with a server, each as one line that names the fix. Never a key, never the user's text."""

from __future__ import annotations

import errno
import os
import ssl
from urllib.parse import urlsplit

import httpx2

from engine.interface import EngineError

_REFUSED = {401, 403}
_BUSY = {429, 502, 503, 504}
CONNECT_S, QUIET_S = 5.0, 30.0  # for a connection; between two pieces of an answer


class RemoteError(EngineError):
    """The server failed. `down`: it is of no use for the moment, so that the next request need not try it.

    `lost`: the connection broke, and another one may do.
    """

    def __init__(self, message: str, *, down: bool = True, lost: bool = False) -> None:
        super().__init__(message)
        self.down = down
        self.lost = lost


def of_transport(error: Exception, host: str) -> RemoteError:
    """What httpx raised, in our words: its own may quote addresses with what stands in them."""
    if (reason := _certificate(error)) is not None:
        return RemoteError(
            f"the certificate of {host} is not trusted ({reason}); add its authority to the system's, or name it in "
            "SSL_CERT_FILE"
        )
    match error:
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return RemoteError(f"{host} does not answer within {CONNECT_S:.0f} s; is the server there?", lost=True)
        case httpx2.ConnectError():
            return RemoteError(
                f"{host} cannot be reached ({_system(error)}); start the server, or correct server.url", lost=True
            )
        case httpx2.TimeoutException():
            return RemoteError(f"{host} has sent nothing for {QUIET_S:.0f} s")
        case httpx2.RemoteProtocolError() if "disconnected" not in str(error) and "closed" not in str(error):
            return RemoteError(f"{host} does not speak HTTP as it should; is server.url the right address?")
        case httpx2.TransportError():
            return RemoteError(f"the connection to {host} was lost", down=False, lost=True)
    return RemoteError(f"the request to {host} failed ({type(error).__name__})")


def of_redirect(location: str | None, host: str) -> RemoteError:
    other = urlsplit(location or "").hostname or ""
    where = f"to {other}" if other.isascii() and other.isprintable() and other else "elsewhere"
    return RemoteError(f"{host} redirects {where}, which is not followed; set server.url to the address that is meant")


def of_status(status: int, host: str, has_key: bool, model: str = "") -> RemoteError:
    """An answer that is no success. What the server says of it is not shown: some quote the key, some the prompt."""
    if status in _REFUSED:
        if has_key:
            return RemoteError(f"{host} refuses the key ({status}); correct SPECTER_SERVER_KEY or server.keyFile")
        return RemoteError(f"{host} wants a key ({status}); set SPECTER_SERVER_KEY or server.keyFile")
    if status == 404:
        what = f"no model {model!r}, or " if model else ""
        return RemoteError(f"{host} has {what}no completions there (404); correct server.model or server.url")
    if status in _BUSY:
        return RemoteError(f"{host} is overloaded or starting ({status})")
    if status >= 500:
        return RemoteError(f"{host} failed ({status}); its log says why", down=False)
    return RemoteError(f"{host} refuses the request ({status})", down=False)


def no_json(kind: str, host: str) -> RemoteError:
    """`kind` is the answer's content type."""
    what = "a web page" if "html" in kind else "something else"
    return RemoteError(f"{host} answers with {what} instead of JSON; is server.url the address of the API?")


def _certificate(error: BaseException) -> str | None:
    """Why a certificate was refused, if that is what happened."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return seen.verify_message.strip().rstrip(".") or "it cannot be verified"
        seen = seen.__cause__ or seen.__context__
    return None


def _system(error: BaseException) -> str:
    """The operating system's words for a connection that failed."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            return "no TLS there"
        if isinstance(seen, OSError) and not isinstance(seen, TimeoutError) and seen.errno in errno.errorcode:
            return os.strerror(seen.errno or 0).lower()  # asyncio's own words hold the address once more
        seen = seen.__cause__ or seen.__context__
    return "connection failed"
