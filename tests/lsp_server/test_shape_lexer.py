"""The lexers against tree-sitter's grammars: what each line of real and of nasty code starts in."""

from __future__ import annotations

import argparse
import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tree_sitter import Node
from tree_sitter_language_pack import get_parser

from lsp_server.shape.languages import LANGUAGES, language_of
from lsp_server.shape.lexer import lex

TREES = Path(__file__).parents[2]
SOURCES = {
    "javascript": """\
const a = /[(\\/]/g.test(`x ${f({ b: `(${c}` })} }`) // (
let d = '(\\'' /* {
{ */ + e / 2 / (g
)
""",
    "typescript": """\
function f<T>(a: Array<T>): a is { b: T } {
  return `(
${a}`;
}
""",
    "tsx": """\
const a = (
  <A b={c}>
    Don't {d ? (
      <e />
    ) : null}
  </A>
);
""",
    "go": """\
func f() {
	a := `(
`
	b := '('
	if a != "{" {
		g(b,
			a)
	}
}
""",
    "rust": """\
fn f<'a>(b: &'a str) -> char {
    let c = r#"(
"#;
    match '(' {
        '\\'' => b,
    }
}
""",
    "java": '''\
class A {
    String b = """
        ( "
        """;
    char c = '('; /* {
    */ int d() {
        return 1;
    }
}
''',
    "c": """\
#define A "("
int f(void) {
    char b = '{'; /* (
    */
    return g(
        b);
}
""",
    "cpp": """\
auto a = R"((
)";
int b() {
    int c = 1'000;
    return [&](int d) {
        return d;
    }(c);
}
""",
    "csharp": """\
class A {
    string b = @"(\\";
    string c = $"{f("(")}";
    void D() {
        E(
            1);
    }
}
""",
    "ruby": """\
a = %w[b (
c]
def d
  "#{e(f["g"],
    1)} ("
  h = <<~I
    (
  I
  j { |k|
    k }
end
""",
    "php": """\
<?php
function f($a) {
    $b = "( {$a['c']}"; # (
    return g(
        $b);
}
""",
    "bash": """\
f() {
  a="$(echo "$1" | sed 's/(//')" # (
  case $a in
  b) echo "${a:-c}" ;;
  esac
  cat <<EOF
{
EOF
  ls
}
""",
    "html": """\
<a b='<'>
  <!-- <c>
  -->
  Don't <d>
  e</d>
</a>
""",
    "css": """\
@media (a) {
  b::after {
    content: "}"; /* {
    */
  }
}
""",
    "json": """\
{
  "a": [
    "(\\"",
    1
  ]
}
""",
    "yaml": """\
a: [
  1, "]"
]
b: don't [
""",
    "python": """\
a = {
    'b': '''(
''', # (
    'c': [
        1, "'"]
}
""",
}


def judged(source: str, language: str) -> Iterator[tuple[bool, list[str]]]:
    """For each line but the first: whether it starts within a string or comment, and the brackets open there."""
    text = source.encode()
    root = get_parser(language_of(language).grammar).parse(text).root_node  # type: ignore[arg-type]
    assert not root.has_error
    tokens = [leaf for leaf in leaves(root) if leaf.parent is not None and is_code(leaf.parent)]
    for at in (number + 1 for number, char in enumerate(text[:-1]) if char == ord("\n")):
        open_: list[str] = []
        for token in tokens:
            if token.start_byte >= at:
                break
            if token.type in ("(", "[", "{", "${", "#{", "$("):
                open_.append(token.type[-1])
            elif token.type in (")", "]", "}"):
                open_.pop()
        yield within(root.descendant_for_byte_range(at, at), at), open_


def is_code(parent: Node) -> bool:
    """Not the bracket after a shell's pattern, and none of a string's own."""
    return parent.type not in ("case_item", "raw_string_literal", "string_array")


def within(node: Node | None, at: int) -> bool:
    """In a string or comment, and not in code within that."""
    while node is not None:
        if node.start_byte < at and ("interpolation" in node.type or "substitution" in node.type):
            return False
        hidden = ("string", "comment", "heredoc_body", "heredoc_end", "raw_text")
        around = node.start_byte < at + ("heredoc" in node.type) and at < node.end_byte
        if around and any(word in node.type for word in hidden) and "concatenated" not in node.type:
            return True
        node = node.parent
    return False


def leaves(node: Node) -> Iterator[Node]:
    if not node.children:
        yield node
    for child in node.children:
        yield from leaves(child)


def compare(source: str, language: str) -> None:
    starts = [number + 1 for number, char in enumerate(source[:-1]) if char == "\n"]
    for at, (hidden, open_) in zip(starts, judged(source, language), strict=True):
        read = lex(source[:at], language_of(language))
        line = source[at:].partition("\n")[0]
        assert (read.inside is not None) == hidden, line
        if language != "html":
            assert [frame.opens for frame in read.open if frame.span is None] == open_, line


@pytest.mark.parametrize("language", sorted(SOURCES))
def test_the_traps_of_each_language(language: str) -> None:
    compare(SOURCES[language], language)


def test_no_language_with_a_lexer_is_forgotten() -> None:
    assert {language.name for language in LANGUAGES if language.spans} == set(SOURCES)


@pytest.mark.parametrize("module", [argparse, ast, textwrap, inspect])
def test_a_real_module(module: ModuleType) -> None:
    compare(inspect.getsource(module)[:20_000].rpartition("\n\n\n")[0] + "\n", "python")


@pytest.mark.parametrize("path", sorted((TREES / "editors/vscode/src").glob("*.ts")), ids=lambda path: path.name)
def test_a_real_script(path: Path) -> None:
    compare(path.read_text(), "typescript")
