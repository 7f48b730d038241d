"""`specter serve` with the fake engine, for tests of the process: `fake_server.py [PORT [TOKEN]]`."""

import sys

from lsp_fakes import fake_host

from lsp_server.serve import ServeError, serve_stdio, serve_tcp

if len(sys.argv) == 1:
    sys.exit(serve_stdio({}, fake_host))
try:
    serve_tcp("127.0.0.1", int(sys.argv[1]), {}, sys.argv[2] if len(sys.argv) > 2 else None, fake_host)
except ServeError as error:
    sys.exit(str(error))
