"""Pieces of other files: what is found, what is chosen, in which order, and what is never read."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.request import Snippet
from lsp_server.commands import complete, place
from lsp_server.context.chunks import Chunk, around, names, resemblance, windows
from lsp_server.context.definitions import definitions
from lsp_server.context.grammar import language, tree
from lsp_server.context.imports import imports, resolve
from lsp_server.context.recent import SIZE, Recent
from lsp_server.context.selection import select
from lsp_server.context.sources import SOURCES, Open, Piece, View, candidates
from lsp_server.context.workspace import LARGEST_FILE, Files, Workspace, resolved
from lsp_server.documents import split_lines

# Imports


@pytest.mark.parametrize(
    ("path", "source", "files", "found"),
    [
        ("p/a.py", "from .b import c", ["p/b.py"], ["p/b.py"]),
        ("p/a.py", "from . import b", ["p/b.py", "p/__init__.py"], ["p/b.py", "p/__init__.py"]),
        ("p/q/a.py", "from ..b import c", ["p/b.py"], ["p/b.py"]),
        ("p/q/a.py", "from ....b import c", ["../b.py"], []),  # above the workspace
        ("p/a.py", "import p.b as x", ["p/b.py"], ["p/b.py"]),
        ("p/a.py", "from p.b import c", ["p/b/__init__.py"], ["p/b/__init__.py"]),
        ("tests/a.py", "from p.b import c", ["src/p/b.py"], ["src/p/b.py"]),
        ("inner/p/a.py", "from p.b import c", ["inner/p/b.py"], ["inner/p/b.py"]),
        ("a.py", "import json, torch", [], []),
        ("a.py", "import a", ["a.py"], []),  # itself
        ("a.py", "if x:\n    def f():\n        from b import c", ["b.py"], ["b.py"]),
        ("a.ts", "import {x} from './b'", ["b.ts"], ["b.ts"]),
        ("a.ts", "import x from './b.js'", ["b.ts"], ["b.ts"]),
        ("s/a.js", "const x = require('../b')", ["b/index.js"], ["b/index.js"]),
        ("s/a.js", "export { x } from './b.mjs'", ["s/b.mjs"], ["s/b.mjs"]),
        ("s/a.js", "function f() { return require('./b').c }", ["s/b.js"], ["s/b.js"]),
        ("s/a.js", "import x from 'react'", ["s/react.js"], []),
        ("s/a.js", "require('../../b')", ["../b.js"], []),  # above the workspace
        ("cmd/a.go", 'import "host/mod/pkg/x"', ["pkg/x/one.go", "pkg/x/two.go", "pkg/x/two_test.go"],
         ["pkg/x/one.go", "pkg/x/two.go"]),
        ("src/main.rs", "mod b;", ["src/b.rs"], ["src/b.rs"]),
        ("src/x/a.rs", "use crate::y::Z;", ["src/y.rs"], ["src/y.rs"]),
        ("src/x/a.rs", "use crate::y::{Z, W};", ["src/y/mod.rs"], ["src/y/mod.rs"]),
        ("src/x/a.rs", "use super::y::Z;", ["src/x/y.rs"], ["src/x/y.rs"]),
        ("src/com/x/A.java", "import com.y.B;", ["src/com/y/B.java"], ["src/com/y/B.java"]),
        ("a/b.c", '#include "c.h"\n#include <d.h>', ["a/c.h", "a/d.h"], ["a/c.h"]),
        ("a/b.cc", '#include "x/c.h"', ["include/x/c.h"], ["include/x/c.h"]),
        ("a.txt", "from b import c", ["b.py"], []),
    ],
)  # fmt: skip
def test_imports_that_resolve(tmp_path: Path, path: str, source: str, files: list[str], found: list[str]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for file in [path, *files]:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    grammar = language(path)
    resolved_ = resolve(imports(source, grammar), root / path, [root], grammar, Path.is_file)
    assert [each.path.relative_to(root).as_posix() for each in resolved_] == found


def test_names_are_known_by_their_aliases() -> None:
    (first, second) = imports("from a import b as c, d\nimport e as f", "python")
    assert first.names == {"c": "b", "d": "d"}
    assert second.names == {}
    (script,) = imports("import {a as b} from './m'", "typescript")
    assert script.names == {"b": "a"}


# Definitions


@pytest.mark.parametrize(
    ("grammar", "source", "heads"),
    [
        (
            "python",
            '@cache\ndef f(\n    a: int,\n) -> int:\n    """\n    Adds.\n\n    More.\n    """\n    return a\n',
            {"f": '@cache\ndef f(\n    a: int,\n) -> int:\n    """Adds."""'},
        ),
        (
            "python",
            'class A(B):\n    """Doc."""\n    x: int = 1\n\n    @property\n    def y(self):\n        return\n\nK = 3\n',
            {"A": 'class A(B):\n    """Doc."""\n    x: int = 1\n    @property\n    def y(self):', "K": "K = 3"},
        ),
        (
            "typescript",
            "export interface I { a: string }\nexport const z = (a: number) => {\n  return 1;\n};\n"
            "export default class A { private q = 1; m(a): void { return } }\nfunction g() { }\ntype T = string;\n",
            {
                "I": "export interface I { a: string }",
                "z": "export const z = (a: number) => {",
                "A": "export default class A {\nprivate q = 1\nm(a): void {",
                "g": "function g() {",
                "T": "type T = string;",
            },
        ),
        ("javascript", "exports.a = function (b) { return b };\n", {"a": "exports.a = function (b) {"}),
        (
            "go",
            "package a\n\ntype (\n\tA int\n\tB int\n)\n\ntype S struct {\n\ta int\n}\n\n"
            "func (s *S) M(q int) int {\n\treturn 1\n}\n",
            {"A": "\tA int", "B": "\tB int", "S": "type S struct {\n\ta int\n}", "M": "func (s *S) M(q int) int {"},
        ),
        ("rust", "pub fn f(a: i32) -> i32 { a }\npub struct S { a: i32 }\n",
         {"f": "pub fn f(a: i32) -> i32 {", "S": "pub struct S { a: i32 }"}),
        ("java", "class X { int a; int m(int q) { return 1; } }\n",
         {"X": "class X {\nint a;\nint m(int q) {"}),
        ("c", "#define N 3\nint *f(int a) { return 0; }\nint g(int);\n",
         {"N": "#define N 3", "f": "int *f(int a) {", "g": "int g(int);"}),
        ("python", "def f(:\n  (((\x00", {}),  # no code at all
        ("python", "", {}),
    ],
)  # fmt: skip
def test_heads_of_definitions(grammar: str, source: str, heads: dict[str, str]) -> None:
    assert {each.name: each.head for each in definitions(source, grammar)} == heads


def test_other_threads_get_their_turn_while_a_long_text_is_parsed() -> None:
    """Seen to fail with the text given to the parser as a whole."""
    text = "".join(f"def function_{number}(first, second=[1, 2]):\n    return first\n" for number in range(4000))
    parsing = threading.Thread(target=tree, args=(text.encode(), "python"))
    parsing.start()
    turns = 0
    while parsing.is_alive():
        time.sleep(0)
        turns += 1
    assert turns > 3


def test_a_long_definition_is_cut() -> None:
    (whole,) = definitions("TABLE = [\n" + "    1,\n" * 1000 + "]\n", "python")
    assert whole.head.count("\n") < 30


# Chunks, recent places


@given(st.lists(st.just("x\n"), max_size=80), st.integers(0, 100), st.integers(1, 40))
def test_around_takes_as_many_lines_as_there_are(lines: list[str], line: int, size: int) -> None:
    first, cut = around(lines, line, size)
    assert len(cut) == min(size, len(lines))
    assert first <= max(line, 0)
    if line < len(lines):
        assert first <= line < first + len(cut)


@given(st.integers(0, 200), st.integers(2, 40))
def test_windows_cover_every_line(count: int, size: int) -> None:
    lines = [str(number) for number in range(count)]
    covered = [line for _, window in windows(lines, size) for line in window]
    assert set(covered) == set(lines)


def test_resemblance() -> None:
    assert resemblance(names("alpha beta"), names("beta alpha x")) == 1
    assert resemblance(names(""), names("")) == 0
    assert resemblance(names("alpha beta"), names("beta gamma")) == pytest.approx(1 / 3)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300))))
def test_recent_places_are_few_and_apart(visits: list[tuple[str, int]]) -> None:
    recent = Recent()
    lines = [f"{number}\n" for number in range(300)]
    for uri, line in visits:
        recent.touched(uri, lines, line)
    assert len(recent.places) <= 16
    for index, visit in enumerate(recent.places):
        assert len(visit.lines) == SIZE
        assert all(
            visit.uri != other.uri or abs(visit.first - other.first) >= SIZE // 2 for other in recent.places[:index]
        )
    if visits:
        assert recent.places[-1].uri == visits[-1][0]


def test_edits_of_a_document_do_not_change_what_it_sees() -> None:
    recent = Recent()
    recent.touched("a", ["x"], 0)
    before = recent.version("a"), recent.version("b")
    recent.touched("a", ["x"], 0)
    assert recent.version("a") == before[0]
    assert recent.version("b") != before[1]


# Selection


def piece(key: int, size: int = 10, text: str = "x") -> Piece:
    return Piece(("recent", f"u{key}", 0), f"u{key}", f"p{key}", text * size)


pieces = st.lists(st.builds(piece, st.integers(0, 12), st.integers(0, 50)), max_size=12)


@given(pieces, pieces, st.integers(0, 10), st.integers(0, 200))
def test_a_selection_is_within_its_limits_and_stable(
    previous: list[Piece], ranked: list[Piece], most: int, budget: int
) -> None:
    """Seen to fail with the pieces sorted by rank alone."""
    before = select((), previous, most, budget)
    after = select(before, ranked, most, budget)
    assert len(after) <= most
    assert sum(len(each.text) for each in after) <= budget
    keys = [each.key for each in after]
    assert len(set(keys)) == len(keys)
    assert set(keys) <= {each.key for each in ranked}
    # Those that stay keep their order and stand before those that come.
    stayed = [key for key in keys if key in {each.key for each in before}]
    assert keys[: len(stayed)] == stayed == [each.key for each in before if each.key in stayed]
    # The same choice again changes nothing.
    assert select(after, after, most, budget) == after


def test_a_piece_in_place_yields_only_to_a_clearly_better_one() -> None:
    """Seen to fail without the places that it counts in front."""
    one, two, three, four = (piece(number) for number in range(4))
    assert select((one,), [two, three, one], 1, 1000) == (one,)
    assert select((one,), [two, three, four, one], 1, 1000) == (two,)
    assert select((one, two), [three, two, one, four], 3, 1000) == (one, two, three)


# Files


def secret_free(tmp_path: Path) -> tuple[Workspace, Files]:
    return Workspace((tmp_path.as_uri(),), ("private/**",)), Files()


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    workspace, files = secret_free(tmp_path)
    path = tmp_path / "a.py"
    path.write_bytes(b"\xef\xbb\xbfone\r\n")
    assert files.read(path, workspace) == "one\n"
    path.write_text("three")
    assert files.read(path, workspace) == "three"
    path.unlink()
    assert files.read(path, workspace) is None


@pytest.mark.parametrize("data", [b"a\0b", b"\xff\xfe", b"x" * (LARGEST_FILE + 1), b"x" * 2000])
def test_no_binary_huge_minified_or_foreign_text(tmp_path: Path, data: bytes) -> None:
    workspace, files = secret_free(tmp_path)
    (tmp_path / "a.py").write_bytes(data)
    assert files.read(tmp_path / "a.py", workspace) is None


def test_no_file_outside_the_workspace_whatever_leads_there(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "a.py").write_text("outside")
    (root / "link.py").symlink_to(outside / "a.py")
    (root / "folder").symlink_to(outside)
    (root / "in.py").write_text("inside")
    (root / "other.py").symlink_to(root / "in.py")
    (root / ".env").symlink_to(root / "in.py")
    workspace, files = Workspace((root.as_uri(),)), Files()
    for path in ("link.py", "folder/a.py", "../outside/a.py", "nothing.py", ".", ".env"):
        assert files.read(root / path, workspace) is None
    assert files.read(root / "other.py", workspace) == "inside"
    assert not Workspace(()).allows((root / "in.py").as_uri())
    assert not workspace.allows("untitled:Untitled-1")
    assert not workspace.allows("file:///%00")
    linked = tmp_path / "linked"
    linked.symlink_to(root)
    assert files.read(linked / "in.py", Workspace((linked.as_uri(),))) == "inside"


def test_no_pipe_is_waited_for(tmp_path: Path) -> None:
    workspace, files = secret_free(tmp_path)
    os.mkfifo(tmp_path / "a.py")
    assert files.read(tmp_path / "a.py", workspace) is None


def test_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("x")
    (tmp_path / "a.py").symlink_to(tmp_path / ".env")
    assert resolved((tmp_path / "a.py").as_uri()).endswith("/.env")
    assert resolved((tmp_path / ".env").as_uri()) == (tmp_path / ".env").as_uri()
    assert resolved("untitled:a") == "untitled:a"


# Everything together


def view(tmp_path: Path, text: str, line: int = 0, others: dict[str, str] | None = None, longest: int = 1000) -> View:
    recent = Recent()
    open_ = [Open((tmp_path / name).as_uri(), split_lines(other)) for name, other in (others or {}).items()]
    for each in open_:
        recent.touched(each.uri, each.lines, 0)
    return View(
        current=Open((tmp_path / "a.py").as_uri(), split_lines(text)),
        line=line,
        others=open_,
        recent=recent.places,
        workspace=secret_free(tmp_path)[0],
        sources=frozenset(SOURCES),
        longest=longest,
    )


CODE = "def load_basket(customer):\n    return basket_of(customer)\n"


def test_definitions_used_near_the_cursor_come_first(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(CODE + "\ndef unused():\n    pass\n")
    text = "from shop import load_basket as lb, unused\n" + "\n" * 100 + "lb(\n"
    (found,) = candidates(view(tmp_path, text, line=101), Files())
    assert found.key == ("definitions", (tmp_path / "shop.py").as_uri(), 0)
    assert (found.path, found.text) == ("shop.py", "def load_basket(customer):\n")
    assert candidates(view(tmp_path, text, line=101, longest=5), Files()) == []


def test_an_open_file_is_read_as_the_editor_has_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(CODE)
    edited = {"shop.py": "def load_basket(customer, day):\r\n    return 1\r\n"}
    found = candidates(view(tmp_path, "from shop import load_basket\nload_basket(", 1, edited), Files())
    assert found[0].text == "def load_basket(customer, day):\n"


def test_what_resembles_the_text_at_the_cursor_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "copy.py").touch()
    (tmp_path / "other.py").touch()
    other = "def empty_basket(customer):\n    customer.orders.clear()\n    customer.total = 0\n    notify(customer)\n"
    found = candidates(view(tmp_path, CODE, 1, {"copy.py": CODE, "other.py": other}), Files())
    assert {each.path for each in found} == {"other.py"}
    assert len(found) == 1  # visited and open, but the same lines


def test_chunks_have_line_ends_of_their_own(tmp_path: Path) -> None:
    assert Chunk("u", 0, "alpha").names == {"alpha"}
    found = candidates(view(tmp_path, "x", 0, {"b.py": "alpha\r\nbeta\r\n"}), Files())
    assert [each.text for each in found] == ["alpha\nbeta"]


def test_the_command_line_shows_definitions_to_a_model_that_reads_other_files(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(CODE)
    (tmp_path / "main.py").write_text("from shop import load_basket\n\nload_basket(\n")
    snapshot, folder = complete._at(place.Place(tmp_path / "main.py", 3, 13))
    assert folder == tmp_path.as_uri()
    for reads, expected in ((True, (Snippet("shop.py", "def load_basket(customer):\n"),)), (False, ())):
        pair = SimpleNamespace(reads_other_files=reads, context=1024)
        room = complete._room(pair, EngineConfig())
        assert complete._other_files(room, snapshot, folder) == expected
