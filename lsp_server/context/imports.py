"""Which files of the workspace a file imports, and under which names it knows what they define.

Relative and absolute imports of Python, relative ones of JavaScript and TypeScript, packages of the same module in Go,
`mod` and `use crate::` in Rust, classes in Java, quoted includes in C and C++. Paths are guessed and then looked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lsp_server.context.grammar import source, tree

if TYPE_CHECKING:
    from tree_sitter import Node

_SCRIPTS = (".ts", ".tsx", ".mts", ".js", ".jsx", ".mjs", ".cjs")
_GO_FILES = 8  # of one package


@dataclass(frozen=True, slots=True)
class Import:
    """One module as the source names it; `names` are those it brings, by the name they have here."""

    module: str
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    path: Path
    names: dict[str, str]


def imports(text: str, grammar: str) -> list[Import]:
    """The imports in a text, in their order."""
    reader = _READERS.get(grammar)
    return [] if reader is None else list(reader(tree(text.encode(), grammar)))


def resolve(
    found: Iterable[Import], path: Path, roots: Sequence[Path], grammar: str, is_file: Callable[[Path], bool]
) -> list[Imported]:
    """The imported files that exist, the file at `path` itself aside. `roots` are the workspace folders."""
    names: dict[Path, dict[str, str]] = {}
    for each in found:
        for candidates in _guesses(each, path, roots, grammar):
            plain = (Path(os.path.normpath(guess)) for guess in candidates)
            target = next((guess for guess in plain if guess != path and _below(guess, roots) and is_file(guess)), None)
            if target is not None:
                names.setdefault(target, {}).update(each.names)
    return [Imported(target, brought) for target, brought in names.items()]


def _guesses(each: Import, path: Path, roots: Sequence[Path], grammar: str) -> Iterator[list[Path]]:
    """For each file that the import may mean, the paths it may have, the likeliest first."""
    if grammar == "python":
        yield from _python_guesses(each, path, roots)
    elif grammar in ("javascript", "typescript", "tsx"):
        yield _script_guesses(path.parent / each.module)
    elif grammar == "go":
        yield from _go_guesses(each.module, roots)
    elif grammar == "rust":
        yield _rust_guesses(each.module, path)
    elif grammar == "java":
        yield [above / f"{each.module.replace('.', '/')}.java" for above in _above(path, roots)]
    else:
        yield [base / each.module for base in (path.parent, *(root / sub for root in roots for sub in ("", "include")))]


def _python_guesses(each: Import, path: Path, roots: Sequence[Path]) -> Iterator[list[Path]]:
    tail = each.module.lstrip(".")
    dots = len(each.module) - len(tail)
    bases = [path.parents[dots - 1]] if 0 < dots <= len(path.parents) else [] if dots else _above(path, roots)
    if not dots:
        bases += [root / "src" for root in roots]
    modules = [base.joinpath(*tail.split(".")) if tail else base for base in bases]
    for name in each.names.values():  # `from package import module`
        yield [guess for module in modules for guess in (module / f"{name}.py", module / name / "__init__.py")]
    yield [
        guess
        for module in modules
        for guess in (*([module.with_name(f"{module.name}.py")] if tail else []), module / "__init__.py")
    ]


def _script_guesses(module: Path) -> list[Path]:
    bare = module.with_suffix("") if module.suffix in _SCRIPTS else module  # "./a.js" may be written in a.ts
    ended = [bare.with_name(bare.name + suffix) for suffix in _SCRIPTS]
    return [module, *ended, *(module / f"index{suffix}" for suffix in _SCRIPTS)]


def _go_guesses(module: str, roots: Sequence[Path]) -> Iterator[list[Path]]:
    """The package's folder ends as its import path does."""
    parts = module.split("/")
    for root in roots:
        for start in range(1, len(parts)):
            folder = root.joinpath(*parts[start:])
            if folder.is_dir():
                files = sorted(file for file in folder.glob("*.go") if not file.name.endswith("_test.go"))
                yield from ([file] for file in files[:_GO_FILES])
                return


def _rust_guesses(module: str, path: Path) -> list[Path]:
    parts = module.split("::")
    above = path.parent if path.stem in ("mod", "lib", "main") else path.with_suffix("")
    if parts[0] == "crate":
        base = next((folder for folder in path.parents if folder.name == "src"), path.parent)
        parts = parts[1:]
    elif parts[0] == "super":
        base, parts = above.parent, parts[1:]
    else:
        base = above
    whole = [base.joinpath(*parts[:size]) for size in range(len(parts), 0, -1)]
    return [guess for each in whole for guess in (each.with_name(f"{each.name}.rs"), each / "mod.rs")]


def _above(path: Path, roots: Sequence[Path]) -> list[Path]:
    """The folders from the file up to its workspace folder, the outermost first, then the other workspace folders."""
    inside = [folder for folder in path.parents if _below(folder, roots)]
    return [*reversed(inside), *(root for root in roots if root not in inside)]


def _below(path: Path, roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def _walk(node: Node, kinds: frozenset[str]) -> Iterator[Node]:
    """The nodes of these kinds, without looking into them."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each.type in kinds:
            yield each
        else:
            waiting += reversed(each.named_children)


def _python(root: Node) -> Iterator[Import]:
    for node in _walk(root, frozenset({"import_statement", "import_from_statement"})):
        brought = [_alias(child) for child in node.children_by_field_name("name")]
        module = node.child_by_field_name("module_name")
        if module is not None:
            yield Import(source(module), dict(brought))
        else:
            yield from (Import(name) for _, name in brought)


def _alias(node: Node) -> tuple[str, str]:
    """(name here, name there)"""
    name, alias = node.child_by_field_name("name"), node.child_by_field_name("alias")
    there = source(node if name is None else name)
    return (there if alias is None else source(alias)), there


def _script(root: Node) -> Iterator[Import]:
    for node in _walk(root, frozenset({"import_statement", "export_statement", "call_expression"})):
        if node.type == "export_statement" and node.child_by_field_name("source") is None:
            yield from _script_inside(node)
            continue
        module = _module(node)
        if module.startswith("."):
            specifiers = _walk(node, frozenset({"import_specifier"}))
            yield Import(module, dict(_alias(each) for each in specifiers))
        elif node.type == "call_expression":
            yield from _script_inside(node)


def _script_inside(node: Node) -> Iterator[Import]:
    for child in node.named_children:
        yield from _script(child)


def _module(node: Node) -> str:
    """What an import, a re-export or a `require` names."""
    where = node.child_by_field_name("source")
    if node.type == "call_expression":
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if function is None or source(function) not in ("require", "import") or arguments is None:
            return ""
        where = arguments.named_children[0] if arguments.named_children else None
    return "" if where is None or where.type != "string" else source(where).strip("'\"`")


def _go(root: Node) -> Iterator[Import]:
    for node in _walk(root, frozenset({"import_spec"})):
        where = node.child_by_field_name("path")
        if where is not None:
            yield Import(source(where).strip('"`'))


def _rust(root: Node) -> Iterator[Import]:
    for node in _walk(root, frozenset({"use_declaration", "mod_item"})):
        name = node.child_by_field_name("argument" if node.type == "use_declaration" else "name")
        if name is None or node.child_by_field_name("body") is not None:
            continue
        path = source(name).partition("{")[0].rstrip(":")
        if node.type == "mod_item" or path.startswith(("crate::", "super::", "self::")):
            yield Import(path.removeprefix("self::"))


def _java(root: Node) -> Iterator[Import]:
    for node in _walk(root, frozenset({"import_declaration"})):
        yield from (Import(source(child)) for child in node.named_children if child.type == "scoped_identifier")


def _c(root: Node) -> Iterator[Import]:
    for node in _walk(root, frozenset({"preproc_include"})):
        where = node.child_by_field_name("path")
        if where is not None and where.type == "string_literal":
            yield Import(source(where).strip('"'))


_READERS: dict[str, Callable[[Node], Iterator[Import]]] = {
    "python": _python, "javascript": _script, "typescript": _script, "tsx": _script,
    "go": _go, "rust": _rust, "java": _java, "c": _c, "cpp": _c,
}  # fmt: skip
