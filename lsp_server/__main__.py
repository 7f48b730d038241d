"""`specter` and `python -m lsp_server`: the command line, quiet about an interrupt from its first import on."""

import sys


def main() -> int:
    """Runs the command line and returns its exit code."""
    try:
        from lsp_server.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
