"""Other files as comments of the current file's language, for models that know no other way to be shown them."""

from __future__ import annotations

from pathlib import PurePosixPath

from engine.request import Snippet

_LEADERS = {
    "#": "py pyi pyx rb sh bash zsh fish pl pm r jl ex exs nim tcl mk cmake yml yaml toml ps1 dockerfile makefile",
    "--": "lua sql hs elm ada adb vhd vhdl purs",
    "%": "tex erl hrl",
    ";": "lisp lsp cl el clj cljs scm rkt asm s",
    '"': "vim",
}
_LEADER_OF = {suffix: leader for leader, suffixes in _LEADERS.items() for suffix in suffixes.split()}


def leader(path: str) -> str:
    """What begins a comment in the language of that file; `//` where it is not known."""
    file = PurePosixPath(path)
    return _LEADER_OF.get((file.suffix[1:] or file.name).lower(), "//")


def commented(snippet: Snippet, leader: str) -> str:
    """The snippet as comments, its path first, a line end last."""
    lines = [f"Path: {snippet.path}", *snippet.text.rstrip("\n").split("\n")]
    return "".join(f"{leader} {line}".rstrip() + "\n" for line in lines)
