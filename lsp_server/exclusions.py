"""Which files are never completed and never shown to the model: the user's globs, and secrets.

Globs are those of .gitignore, read by pathspec. Knows paths only; no file is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lsp_server.documents import is_uri

if TYPE_CHECKING:  # 30 ms that the answer to `initialize` need not wait for
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

# Where credentials are kept by convention. No glob of the user's takes one away.
SECRETS = (
    ".env", ".env.*", "*.env", ".envrc",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.gpg", "*.ppk",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh/", ".gnupg/",
    ".npmrc", ".pypirc", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials", ".dockercfg",
    ".aws/", ".azure/", ".kube/", "**/.docker/config.json", "**/.config/gcloud/",
    "credentials", "credentials.json", "credentials.toml", "credentials.yaml", "credentials.yml",
    "secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml", "*.secret", "*.secrets",
    "service-account*.json", "*.tfvars", "*.tfstate",
)  # fmt: skip
_LONGEST_GLOB = 1000
_DRIVE = re.compile(r"\A/[A-Za-z]:(?=/|\Z)")
# Git reads these within brackets, pathspec does not.
_BEYOND_PATHSPEC = re.compile(r"(?<!\\)\[[^\]]*(?:\[:|\\)")

# As pathspec writes the `**` of a glob, and two `*` in one name.
_FOLDERS, _LEADING_FOLDERS = "(?:/.+)?", "^(?:.+/)?"
_STAR_BEFORE_STAR = re.compile(r"\[\^/\]\*((?:\[\^/\](?![*+])|[^/])*?)(?=\[\^/\]\*)")


def path_of(uri: str) -> str:
    """The path in a uri, decoded, with forward slashes; for `untitled:` and the like, whatever they call it. What is no
    uri is all path. A drive is a small letter: VS Code sends `c%3A` for documents and `C:` for folders."""
    path = unquote(urlsplit(uri).path if is_uri(uri) else uri)
    return _DRIVE.sub(lambda drive: drive[0].lower(), path)


def relative_path(uri: str, folders: Sequence[str]) -> str | None:
    """The path below the innermost workspace folder that holds it; None if none does."""
    path = path_of(uri)
    roots = [path_of(folder).rstrip("/") + "/" for folder in folders]
    inside = [root for root in roots if path.startswith(root)]
    return path.removeprefix(max(inside, key=len)) if inside else None


def excluded(uri: str, folders: Sequence[str], globs: Sequence[str]) -> bool:
    """Whether a file is off limits. Secrets are looked for in the whole path, the user's globs below the workspace, as
    if they stood in a .gitignore there, but that case does not count: `.ENV` may be `.env`."""
    return _excluded(uri, tuple(folders), tuple(globs))


@lru_cache(maxsize=1024)  # asked at every key and every request, of the same few documents
def _excluded(uri: str, folders: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    whole = path_of(uri)
    return _spec(SECRETS).match_file(whole) or _spec(globs).match_file(relative_path(uri, folders) or whole)


def complaint(glob: str) -> str | None:
    """What is wrong with a glob and how to repair it; None if it can be used."""
    if len(glob) > _LONGEST_GLOB:
        return f"{glob[:20]!r}… is longer than {_LONGEST_GLOB:,} characters; use several globs"
    if _BEYOND_PATHSPEC.search(glob):
        return f"{glob!r} has a class or a backslash within brackets; write its characters, as in [0-9]"
    try:
        _pattern(glob)
    except (ValueError, re.error):
        return f"{glob!r} is no glob as in .gitignore; correct it or remove it"
    return None


@lru_cache(maxsize=64)
def _spec(globs: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec([_pattern(glob) for glob in globs if complaint(glob) is None])


def _pattern(glob: str) -> GitIgnoreSpecPattern:
    """Raises ValueError or re.error at what is no glob."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    regex, include = GitIgnoreSpecPattern.pattern_to_regex(glob)
    if regex is None:  # a comment, or nothing
        return GitIgnoreSpecPattern(None)
    return GitIgnoreSpecPattern(re.compile(_linear(regex), re.IGNORECASE | re.DOTALL), include)


def _linear(regex: str) -> str:
    """The same, without the search that takes a power of the path's length with the number of stars: `*a*a*a*a*b` took
    seconds for a name of 60 letters.

    What stands between two `*` of a name, or between two `**` of a path, may as well be the first place where it fits:
    what follows then has the most room. So the search need not come back to it (an atomic group); only after the last
    is there an end to be met.
    """
    parts = [_STAR_BEFORE_STAR.sub(r"(?>[^/]*?\1)", part) for part in regex.split(_FOLDERS)]
    if len(parts) == 1:
        return parts[0]
    first, *middle, last = parts
    if first.startswith(_LEADING_FOLDERS):
        first = f"^(?>(?:.+?/)??{first.removeprefix(_LEADING_FOLDERS)}(?=/))"
    return first + "".join(f"(?>(?:/.+?)??{part}(?=/))" for part in middle) + _FOLDERS + last
