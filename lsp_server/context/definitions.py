"""What a file defines, in few lines: signatures, first lines of docstrings, constants, the members of classes.

Pure, but for the parser. Knows the grammars' names of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from lsp_server.context.grammar import source, tree

if TYPE_CHECKING:
    from tree_sitter import Node

_FUNCTIONS = {
    "function_definition", "function_declaration", "generator_function_declaration", "function_item",
    "function_signature_item", "function_signature", "method_definition", "method_signature", "method_declaration",
    "abstract_method_signature", "constructor_declaration",
}  # fmt: skip
_CLASSES = {
    "class_definition", "class_declaration", "abstract_class_declaration", "impl_item", "trait_item", "class_specifier",
    "record_declaration",
}  # fmt: skip
# Shown whole: they are short, or all of them is what a user of theirs must know.
_WHOLE = {
    "assignment", "type_alias_statement", "variable_declarator", "public_field_definition", "field_definition",
    "property_signature", "field_declaration", "constant_declaration",
    "interface_declaration", "type_alias_declaration", "enum_declaration",
    "type_spec", "const_spec", "var_spec", "struct_item", "enum_item", "type_item", "const_item", "static_item",
    "struct_specifier", "enum_specifier", "union_specifier", "type_definition", "declaration", "preproc_def",
}  # fmt: skip
# Around a definition, and to be looked into.
_WRAPPERS = {
    "decorated_definition", "export_statement", "expression_statement", "lexical_declaration", "variable_declaration",
    "type_declaration", "const_declaration", "var_declaration", "namespace_definition", "declaration_list",
    "linkage_specification", "preproc_ifdef", "preproc_if", "mod_item", "const_spec_list", "internal_module",
    "template_declaration",
}  # fmt: skip
_AROUND_ONE = {
    "decorated_definition", "export_statement", "lexical_declaration", "variable_declaration", "type_declaration",
    "const_declaration", "var_declaration", "template_declaration", "expression_statement",
}  # fmt: skip
_MOST_LINES = 24  # of one definition
_WIDEST = 160  # characters of a line


@dataclass(frozen=True, slots=True)
class Definition:
    name: str
    line: int  # from 0
    head: str


@lru_cache(maxsize=64)
def definitions(text: str, grammar: str) -> tuple[Definition, ...]:
    """The top-level definitions of a file, in their order. A constant may be among them more than once."""
    data = text.encode()
    return tuple(_Reader(data).within(tree(data, grammar)))


class _Reader:
    """Reads one file's tree. Holds its bytes for the sake of indentations, which no node contains."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def within(self, parent: Node) -> Iterator[Definition]:
        for node in parent.named_children:
            if name := _name(node):
                shown = _outermost(node)
                yield Definition(name, shown.start_point[0], _shorter(self._head(node, shown)))
            elif node.type in _WRAPPERS:
                yield from self.within(node)

    def _head(self, node: Node, shown: Node) -> str:
        """From the beginning of what is shown: whole, or down to the body and what of it matters."""
        body = _body(node)
        if body is None:
            return self._indent(shown) + source(shown)
        whole = shown.text or b""
        signature = whole[: body.start_byte - shown.start_byte].decode(errors="replace").rstrip()
        inner = self._members(body) if node.type in _CLASSES else self._docstring(body)
        opened = " {" if source(body).startswith("{") else ""
        return "\n".join([self._indent(shown) + signature + opened, *inner])

    def _members(self, body: Node) -> list[str]:
        lines = self._docstring(body)
        for child in body.named_children:
            node = child
            if child.type in ("decorated_definition", "expression_statement") and child.named_children:
                node = child.named_children[-1]
            if _name(node):
                lines += self._head(node, child).split("\n")
        return lines

    def _docstring(self, body: Node) -> list[str]:
        """The first line of a Python docstring that says something."""
        first = body.named_children[0] if body.named_children else None
        if first is not None and first.type == "expression_statement" and first.named_children:
            first = first.named_children[0]
        if first is None or first.type != "string":
            return []
        match = re.fullmatch(r"[a-zA-Z]*(\"\"\"|'''|\"|')\s*(.*?)\s*\1", source(first), re.DOTALL)
        summary = match[2].partition("\n")[0].rstrip() if match else ""
        return [f'{self._indent(first)}"""{summary}"""'] if summary else []

    def _indent(self, node: Node) -> str:
        before = self._data[self._data.rfind(b"\n", 0, node.start_byte) + 1 : node.start_byte]
        return before.decode() if not before.strip() else ""


def _outermost(node: Node) -> Node:
    """With the decorators, keywords and the like around a definition, unless it shares them with others."""
    parent = node.parent
    alone = parent is not None and parent.type in _AROUND_ONE and _definitions_in(parent) == 1
    return _outermost(parent) if parent is not None and alone else node


def _definitions_in(parent: Node) -> int:
    return sum(child.type not in ("decorator", "comment") for child in parent.named_children)


def _is_definition(node: Node) -> bool:
    return node.type in _FUNCTIONS or node.type in _CLASSES or node.type in _WHOLE


def _name(node: Node) -> str:
    """Of what is defined; "" if nothing is."""
    if node.type == "assignment_expression":  # exports.name = …
        left = node.child_by_field_name("left")
        said = source(left) if left is not None else ""
        return said.rpartition(".")[2] if said.startswith(("exports.", "module.exports.")) else ""
    if not _is_definition(node):
        return ""
    keys = ("name", "left", "declarator", "type") if node.type == "impl_item" else ("name", "left", "declarator")
    named = next((inner for key in keys if (inner := node.child_by_field_name(key)) is not None), None)
    while named is not None:
        deeper = named.child_by_field_name("declarator") or named.child_by_field_name("name")
        if deeper is None:
            return source(named) if named.type.endswith("identifier") else ""
        named = deeper
    return ""


def _body(node: Node) -> Node | None:
    """What is left out of a function, and looked into of a class."""
    if node.type in _FUNCTIONS or node.type in _CLASSES:
        return node.child_by_field_name("body")
    value = {"assignment_expression": "right", "variable_declarator": "value"}.get(node.type)
    function = None if value is None else node.child_by_field_name(value)
    return None if function is None else function.child_by_field_name("body")


def _shorter(head: str) -> str:
    return "\n".join(line[:_WIDEST].rstrip() for line in head.rstrip().split("\n")[:_MOST_LINES])
