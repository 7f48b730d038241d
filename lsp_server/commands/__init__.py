"""The commands of `specter`, one module each: SUMMARY, `configure(parser)` and `run(arguments) -> exit code`.

What a command needs of the engine it imports when it runs: torch takes seconds, and `specter --help` has none of them.
"""

from __future__ import annotations


class UserError(Exception):
    """The user's mistake: one line that names it and the fix."""
