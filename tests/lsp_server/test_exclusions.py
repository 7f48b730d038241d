from __future__ import annotations

import pytest

from lsp_server.exclusions import excluded, relative_path

FOLDERS = ("file:///home/u/project", "file:///home/u/project/inner")


@pytest.mark.parametrize(
    "path",
    [
        ".env", ".env.local", "prod.env", ".ENV", "deep/er/.env", ".envrc",
        "key.pem", "server.key", "id_rsa", "id_rsa.pub", "id_ed25519",
        ".npmrc", ".netrc", ".pypirc", ".git-credentials",
        ".aws/credentials", ".aws/config", ".ssh/config", ".kube/config", ".docker/config.json",
        "credentials.json", "secrets.yaml", "terraform.tfstate", "a%20b/.env", "%2Eenv",
    ],
)  # fmt: skip
def test_secrets(path: str) -> None:
    assert excluded(f"file:///home/u/project/{path}", FOLDERS, ())
    assert excluded(f"file:///somewhere/else/{path}", FOLDERS, ())


@pytest.mark.parametrize(
    "uri",
    [
        "file:///home/u/project/environment.py",
        "file:///home/u/project/env.py",
        "file:///home/u/project/keys.py",
        "file:///home/u/project/keyboard.keymap",
        "file:///home/u/project/secrets.py",
        "file:///home/u/project/aws/config",
        "untitled:Untitled-1",
        "",
        "file:///",
    ],
)
def test_not_secrets(uri: str) -> None:
    assert not excluded(uri, FOLDERS, ())


@pytest.mark.parametrize(
    ("glob", "path", "hit"),
    [
        ("*.md", "a.md", True),
        ("*.md", "docs/a.md", True),
        ("*.md", "a.mdx", False),
        ("generated", "src/generated/a.py", True),
        ("generated/**", "generated/deep/a.py", True),
        ("/generated", "src/generated/a.py", False),
        ("/src/**/*.py", "src/a.py", True),
        ("/src/**/*.py", "src/b/c/a.py", True),
        ("/src/*.py", "src/b/a.py", False),
        ("a?c.py", "abc.py", True),
        ("a?c.py", "a/c.py", False),
        ("u/**", "a.py", False),  # the folder above the workspace does not count
        ("[x].py", "[x].py", True),  # no character classes: brackets are brackets
    ],
)
def test_globs(glob: str, path: str, hit: bool) -> None:
    assert excluded(f"file:///home/u/project/{path}", FOLDERS[:1], (glob,)) == hit


def test_globs_of_the_user_are_added_and_an_exclamation_mark_takes_one_away() -> None:
    assert excluded("file:///w/.env", (), ("*.md",))
    assert not excluded("file:///w/x.pem", (), ("!*.pem",))
    assert excluded("file:///w/x.key", (), ("!*.pem",))


def test_paths_below_the_innermost_folder() -> None:
    assert relative_path("file:///home/u/project/inner/a%20b.py", FOLDERS) == "a b.py"
    assert relative_path("file:///home/u/project/x.py", FOLDERS) == "x.py"
    assert relative_path("file:///home/u/project-2/x.py", FOLDERS) is None
