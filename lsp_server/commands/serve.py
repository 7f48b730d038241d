"""Runs the language server on stdin and stdout, or for several clients on a TCP port."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from lsp_server.commands import UserError
from lsp_server.commands.options import add_engine_options, engine_config, overrides

_SHORTEST_TOKEN = 16
SUMMARY = "run the language server, on stdio or TCP"


class Address(NamedTuple):
    host: str
    port: int


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stdio", action="store_true", help="use stdin and stdout: the default, and what editors may add"
    )
    parser.add_argument(
        "--tcp", metavar="HOST:PORT", help="listen there instead, as in 127.0.0.1:7700; port 0 takes a free one"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="with --tcp: clients must give the token in FILE, as initializationOptions.token; needed beyond loopback",
    )
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from lsp_server.serve import ServeError, serve_stdio, serve_tcp

    engine_config(arguments)  # a wrong option is said here, not to every client
    options = overrides(arguments)
    if arguments.tcp is None:
        if arguments.token_file is not None:
            raise UserError("--token-file goes with --tcp; leave it out")
        return serve_stdio(options)
    if arguments.stdio:
        raise UserError("--stdio and --tcp exclude one another; leave one out")
    address = parse_address(arguments.tcp)
    try:
        return serve_tcp(address.host, address.port, options, _token(arguments.token_file))
    except ServeError as error:
        raise UserError(f"--tcp: {error}") from None


def _token(file: str | None) -> str | None:
    """The file's one line; from a file, so that it is in no process list and no shell history."""
    if file is None:
        return None
    try:
        token = Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"--token-file: {file} cannot be read ({reason}); give a file with one line") from None
    if len(token) < _SHORTEST_TOKEN or not token.isprintable():
        raise UserError(
            f"--token-file: {file} must hold one line of at least {_SHORTEST_TOKEN} characters; "
            "make one with `openssl rand -hex 16`"
        )
    return token


def parse_address(text: str) -> Address:
    """HOST:PORT; an IPv6 address may stand in brackets."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UserError(f"--tcp: {text!r} is no address; give HOST:PORT, as in 127.0.0.1:7700")
    return Address(host, int(port))
