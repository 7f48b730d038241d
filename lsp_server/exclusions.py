"""Which files are never completed and never shown to the model: the user's globs, and secrets.

Knows paths only; no file is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote, urlsplit

# Where credentials are kept by convention. A user's "!" glob takes one away.
SECRETS = (
    ".env", ".env.*", "*.env", ".envrc", ".env/**",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.gpg", "*.ppk",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh/**", ".gnupg/**",
    ".npmrc", ".pypirc", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials", ".dockercfg",
    ".aws/**", ".azure/**", ".kube/**", ".docker/config.json", ".config/gcloud/**",
    "credentials", "credentials.json", "credentials.toml", "credentials.yaml", "credentials.yml",
    "secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml", "*.secret", "*.secrets",
    "service-account*.json", "*.tfvars", "*.tfstate",
)  # fmt: skip


def path_of(uri: str) -> str:
    """The path in a uri, decoded, with forward slashes; for `untitled:` and the like, whatever they call it."""
    parts = urlsplit(uri)
    return unquote(parts.path)


def relative_path(uri: str, folders: Sequence[str]) -> str | None:
    """The path below the innermost workspace folder that holds it; None if none does."""
    path = path_of(uri)
    roots = [path_of(folder).rstrip("/") + "/" for folder in folders]
    inside = [root for root in roots if path.startswith(root)]
    return path.removeprefix(max(inside, key=len)) if inside else None


def excluded(uri: str, folders: Sequence[str], globs: Sequence[str]) -> bool:
    """Whether a file is off limits. Secrets are looked for in the whole path, the user's globs below the workspace."""
    taken_away = {glob[1:] for glob in globs if glob.startswith("!")}
    whole = path_of(uri)
    below = relative_path(uri, folders) or whole
    return any(_pattern(glob).search(whole) for glob in SECRETS if glob not in taken_away) or any(
        _pattern(glob).search(below) for glob in globs if not glob.startswith("!")
    )


@lru_cache(maxsize=1024)
def _pattern(glob: str) -> re.Pattern[str]:
    """As in .gitignore: at any depth unless it begins with "/", and what is below a matching folder matches. Case does
    not count: `.ENV` on a file system that ignores case is `.env`."""
    anchor = r"\A/?" if glob.startswith("/") else r"(?:\A|/)"
    parts = re.split(r"(\*\*/?|\*|\?)", glob.strip("/"))
    wild = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    body = "".join(wild.get(part) or re.escape(part) for part in parts)
    return re.compile(anchor + body + r"(?:/|\Z)", re.IGNORECASE | re.DOTALL)
