"""Which grammar reads a file, and trees of its text. The only file of this package that imports tree-sitter."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:  # not when the server starts
    from tree_sitter import Node
    from tree_sitter_language_pack import SupportedLanguage

_BY_SUFFIX = {
    ".py": "python", ".pyi": "python",
    ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascript",
    ".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "tsx",
    ".go": "go", ".rs": "rust", ".java": "java",
    ".c": "c", ".h": "cpp", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hh": "cpp", ".hpp": "cpp",
}  # fmt: skip

_PIECE = 2048  # bytes


def language(path: str) -> str:
    """The grammar's name; "" if definitions of this kind of file are not understood."""
    return _BY_SUFFIX.get(PurePath(path).suffix.lower(), "")


def tree(text: bytes, grammar: str) -> Node:
    """The root of the text's tree. A parser belongs to one thread at a time, so each call takes its own.

    The parser holds Python's lock, 0.1 s on 200 kB, but while it asks for more text: in pieces, other threads get
    their turn.
    """
    from tree_sitter_language_pack import get_parser

    parser = get_parser(cast("SupportedLanguage", grammar))
    return parser.parse(lambda at, _: text[at : at + _PIECE]).root_node


def source(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
