"""`python -m lsp_server` is `specter`."""

import sys

from lsp_server.cli import main

sys.exit(main())
