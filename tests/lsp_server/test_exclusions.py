from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from lsp_server.exclusions import complaint, excluded, relative_path

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
    ("globs", "path", "hit"),
    [
        (("*.md",), "a.md", True),
        (("*.md",), "docs/a.md", True),
        (("*.md",), "a.mdx", False),
        (("*.md",), "A.MD", True),  # as on a file system that ignores case
        (("generated",), "src/generated/a.py", True),
        (("generated/**",), "generated/deep/a.py", True),
        (("/generated",), "src/generated/a.py", False),
        (("/src/**/*.py",), "src/a.py", True),
        (("/src/**/*.py",), "src/b/c/a.py", True),
        (("/src/*.py",), "src/b/a.py", False),
        (("src/gen",), "src/gen/a.py", True),
        (("src/gen",), "lib/src/gen/a.py", False),
        (("build/",), "build/a.py", True),
        (("build/",), "src/build", False),
        (("a?c.py",), "abc.py", True),
        (("a?c.py",), "a/c.py", False),
        (("gen[0-9].py",), "gen7.py", True),
        (("*.[oa]",), "x.o", True),
        (("[!a].py",), "a.py", False),
        ((r"\[x\].py",), "[x].py", True),
        ((r"\#c",), "#c", True),
        (("#c",), "#c", False),
        (("x.py  ",), "x.py", True),
        (("*.py", "!keep.py"), "keep.py", False),
        (("*.py", "!keep.py"), "src/other.py", True),
        (("!keep.py", "*.py"), "keep.py", True),
        (("u/**",), "a.py", False),  # the folder above the workspace does not count
        (("",), "a.py", False),
        (("/",), "a.py", False),
        (("!", "[z-a]", "a\\", "*.py"), "a.py", True),  # what is no glob takes none of the others with it
    ],
)
def test_globs(globs: tuple[str, ...], path: str, hit: bool) -> None:
    assert excluded(f"file:///home/u/project/{quote(path)}", FOLDERS[:1], globs) == hit


_names = st.text("ab.[]#! ", min_size=1, max_size=3).filter(lambda name: name.strip(". ") and name == name.strip())
_paths = st.lists(_names, min_size=1, max_size=3).map("/".join)
_pieces = st.sampled_from(
    ["*", "**", "?", "/", "/**/", "a", "b", ".", "[ab]", "[a-b]", "!", "#", r"\#", r"\!", " ", r"\ "]
)
_globs = st.tuples(st.sampled_from(["", "", "!"]), st.lists(_pieces, min_size=1, max_size=5)).map(
    lambda glob: glob[0] + "".join(glob[1])
)  # but `*/**/`: pathspec takes it for `*/`


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the judge")
@settings(max_examples=60, deadline=None)
@given(st.lists(_globs, min_size=1, max_size=4), st.lists(_paths, min_size=1, max_size=8))
def test_globs_are_those_of_git(globs: list[str], paths: list[str]) -> None:
    globs = [glob for glob in globs if complaint(glob) is None and not glob.endswith("**/")]
    with TemporaryDirectory() as folder:
        root = Path(folder)
        _git(root, "init", "-q")
        (root / ".git/info/exclude").write_text("".join(f"{glob}\n" for glob in globs))
        there = [path for path in paths if _made(root / path)]
        ignored = set(_git(root, "check-ignore", "--no-index", "-z", "--stdin", stdin="\0".join(there)).split("\0"))
        for path in there:
            assert excluded((root / path).as_uri(), [root.as_uri()], globs) == (path in ignored), (globs, path)


def _made(path: Path) -> bool:
    """Whether the file can be there beside the others."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError:
        return False
    return path.is_file()


def _git(folder: Path, *arguments: str, stdin: str = "") -> str:
    command = ["git", "-C", str(folder), "-c", "core.ignorecase=true", "-c", "core.excludesFile=", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False).stdout


@given(
    st.lists(st.sampled_from(["*", "**", "?", "/", "/**/", "a", "b", "[ab]"]), min_size=1, max_size=12).map("".join),
    st.text("ab/", max_size=30),
)
@example("**/a/**/b", "a/b/a/c")
@example("**/a/**/b/**/a", "a/bb/b/a")
@example("*a*b*ab", "aabab")
def test_the_search_that_never_comes_back_finds_the_same(glob: str, path: str) -> None:
    assume(complaint(glob) is None)
    assert excluded(f"untitled:w/{path}", (), (glob,)) == GitIgnoreSpec.from_lines([glob]).match_file(f"w/{path}")


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("*a*a*a*a*a*a*b", "a" * 60),
        ("*a*a*a*a*a*a*b", "a" * 4000),
        ("*" * 500 + "b", "a" * 4000),
        ("*?*?*?*?*?*?*?b", "a" * 2000),
        ("/".join(["**", "a"] * 12) + "/b", "a/" * 2000),
        ("/".join(["**", "*a*a*a"] * 6) + "/b", "aaaaaaaaaa/" * 300),
        ("**/" + "/".join(["*a*a"] * 6) + "/**/b", "aaaaaaaaaa/" * 300),
    ],
)
def test_no_glob_takes_long(glob: str, path: str) -> None:
    assert complaint(glob) is None
    began = time.perf_counter()
    assert not excluded(f"untitled:{path}", (), (glob,))
    assert time.perf_counter() - began < 1  # 1 to 40 ms on an idle machine; the plain search takes hours


def test_secrets_stay_whatever_the_user_says() -> None:
    assert excluded("file:///w/.env", (), ("*.md",))
    for glob in ("!*.pem", "!x.pem", "!**", "!/x.pem"):
        assert excluded("file:///w/x.pem", ["file:///w"], (glob,))


@pytest.mark.parametrize("uri", ["file://[bad/.env", "http://[::1/.env", "file://[/x.key", "file:///a%0Ab/.env"])
def test_a_secret_is_found_in_what_is_no_uri(uri: str) -> None:
    assert excluded(uri, ("file://[bad",), ())
    assert not excluded(uri + "ironment.py", ("file://[bad",), ())


def test_paths_below_the_innermost_folder() -> None:
    assert relative_path("file:///home/u/project/inner/a%20b.py", FOLDERS) == "a b.py"
    assert relative_path("file:///home/u/project/x.py", FOLDERS) == "x.py"
    assert relative_path("file:///home/u/project-2/x.py", FOLDERS) is None


@pytest.mark.parametrize("folder", ["file:///C:/code/project", "file:///c%3A/code/project/", "file:///c:/code/project"])
@pytest.mark.parametrize("drive", ["c%3A", "C:", "c:", "C%3A"])
def test_a_drive_has_many_spellings(folder: str, drive: str) -> None:
    """Failed with paths compared as they come: VS Code's folder and document differ in them."""
    uri = f"file:///{drive}/code/project/sub/a%20b.py"
    assert relative_path(uri, [folder]) == "sub/a b.py"
    assert excluded(uri, [folder], ["/sub"])
    assert excluded(f"file:///{drive}/Users/me/.env", [folder], [])
