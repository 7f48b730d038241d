"""Before and after, for each language: a document with its cursor (‸), what a model says there, what is shown of it.

What the models say runs on past the right end, as models do.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """`shown` is what of `said` ends up in the document at the cursor."""

    language: str
    case: str
    document: str
    said: str
    shown: str


_BRACES = {  # the head of a function, a statement in it, and another one
    "javascript": ("function f(a) {", "return a;", "let b = a;"),
    "typescript": ("function f(a: number): number {", "return a;", "let b: number = a;"),
    "tsx": ("function F(a: P) {", "return <p>Don't</p>;", "const b = <A x={a} />;"),
    "go": ("func f(a int) int {", "return a", "b := a"),
    "rust": ("fn f<'a>(a: &'a str) -> &'a str {", "return a;", "let b = 'x';"),
    "java": ("int f(int a) {", "return a;", "int b = a;"),
    "c": ("int f(int a) {", "return a;", "int b = a;"),
    "cpp": ("auto f(int a) -> int {", "return a;", "auto b = 1'000;"),
    "csharp": ("int F(int a) {", "return a;", 'var b = @"\\";'),
    "php": ("function f($a) {", "return $a;", "$b = $a;"),
    "css": ("a:hover {", "color: red;", "margin: 0;"),
}


def _braces(language: str, head: str, last: str, first: str) -> list[Row]:
    body = f"{first}\n    {last}"
    return [
        Row(language, "an empty body", f"{head}\n    ‸\n}}\n", f"{body}\n}}\n\n{head}", body),
        Row(language, "an empty body that nothing closes", f"{head}\n    ‸", f"{body}\n}}\n\n{head}", f"{body}\n}}"),
        Row(language, "a body between its braces", f"{head}‸}}\n", f"\n    {body}\n}}\n", f"\n    {body}\n"),
        Row(language, "the end of a statement", f"{head}\n    {last[:3]}‸\n}}\n", f"{last[3:]}\n}}\n", last[3:]),
        Row(language, "the next line again", f"{head}\n    ‸\n    {last}\n}}\n", f"{first}\n    {last}\n}}\n", first),
        Row(language, "only the next line", f"{head}\n    ‸\n    {last}\n}}\n", f"{last}\n}}\n", ""),
        Row(language, "only the closing brace", f"{head}\n    {last}\n‸\n}}\n", "}\n", ""),
        Row(language, "the indentation again", f"{head}\n    ‸\n}}\n", f"    {last}\n}}\n", last),
        Row(language, "white space", f"{head}\n    ‸\n}}\n", "    \n\t\n", ""),
        Row(language, "white space behind", f"{head}\n    ‸\n}}\n", f"{last}   \n\n", last),
        Row(language, "the line in circles", f"{head}\n    ‸\n}}\n", f"{first}\n    " * 5, f"{first}\n    {first}"),
        Row(language, "in a comment", f"{head}\n    /* so ‸ */\n}}\n", "it (is */ and", "it (is"),
    ]


_CALLS = {  # the beginning of a statement
    "javascript": "const x = ",
    "typescript": "const x: number = ",
    "tsx": "const x = ",
    "go": "x := ",
    "rust": "let x = ",
    "java": "int x = ",
    "c": "int x = ",
    "cpp": "auto x = ",
    "csharp": "var x = ",
    "php": "$x = ",
    "python": "x = ",
    "ruby": "x = ",
    "css": "  width: ",
}


def _calls(language: str, before: str) -> list[Row]:
    rows = [
        Row(language, "a bracket that is there", f"{before}f(‸)\n", "a, g(b))\nfoo", "a, g(b)"),
        Row(language, "one of two brackets is there", f"{before}f(g(‸)\n", "a))\nfoo", "a)"),
        Row(language, "a quote that is there", f'{before}f("‸")\n', 'a (b")\nfoo', "a (b"),
        Row(language, "the middle of an expression", f"{before}f(a, ‸, c)\n", "b, c)\nfoo", "b"),
        Row(language, "no second space", f"{before}‸\n", " f(a)", "f(a)"),
        Row(language, "no second space behind", f"{before}f(a) +‸ b\n", " c + ", " c +"),
        Row(language, "what follows, again", f"{before}f(‸).g(a)\n", "b).g(a)\n", "b"),
        Row(language, "a bracket in a string", f'{before}f("(", ‸)\n', '")", b)', '")", b'),
    ]
    return rows if language != "css" else [row for row in rows if "space" in row.case or "bracket" in row.case]


_PYTHON = [
    Row("python", "an empty body", "def f():\n    ‸\n\nx = 1\n", "b()\n\n    return\n\ndef g", "b()\n\n    return"),
    Row("python", "an empty body at the margin", "def f(a):\n‸\n", "    return a\n\ndef g():", "    return a"),
    Row("python", "an opener's body", "if a‸\n", ":\n    b()\nelse:\n    c()\nd()", ":\n    b()\nelse:\n    c()"),
    Row("python", "the end of a statement", "x = ‸\ny = 2\n", "1\ny = 2\n", "1"),
    Row("python", "a statement of several lines", "x = ‸\n", "f(\n    1,\n)\ny = 2", "f(\n    1,\n)"),
    Row("python", "a paragraph", "a = 1\n‸\n", "b = 2\nc = 3\n\nd = 4", "b = 2\nc = 3"),
    Row("python", "the next line again", "def f():\n    ‸\n    return x\n", "x = 1\n    return x\n", "x = 1"),
    Row("python", "the indentation again", "def f():\n    ‸\n", "    return 1\n", "return 1"),
    Row("python", "all of an indentation", "class A:\n    def f(a):\n    ‸\n", "        return 1\n", "    return 1"),
    Row("python", "an empty line first", "def f():\n    ‸\n", "\n    return 1\n", "return 1"),
    Row("python", "the line in circles", "def f():\n    ‸\n", "x = 1\n    " * 5, "x = 1\n    x = 1"),
    Row("python", "the words in circles", "x = ‸\n", "f(a, b, " * 12, "f(a, b, f(a, b,"),
    Row("python", "a row of zeros", "x = [‸]\n", "0, " * 30 + "0]\n", "0, " * 30 + "0"),
    Row("python", "a decorator as below", "‸\n@a\ndef f(): ...\n", "@a\ndef g(): ...\n\nx", "@a\ndef g(): ..."),
    Row("python", "the end of a call's lines", "f(a,\n  b‸\nx = 1\n", ", c)\nx = 1\n", ", c)"),
    Row("python", "white space", "def f():\n    ‸\n", "    \n\n", ""),
    Row("python", "in a comment", "# a (‸\nx = 1\n", "b) c\nx = 1", "b) c"),
    Row("python", "in a docstring", 'def f():\n    """Does ‸"""\n', 'it (well.""" x', "it (well."),
    Row("python", "a docstring that nothing ends", 'def f():\n    """‸\n', 'Do it."""\n    return 1\n', 'Do it."""'),
    Row("python", "a key of a dictionary", "x = {\n    ‸\n}\n", '"a": 1,\n    "b": 2,\n}\n', '"a": 1,\n    "b": 2,'),
]  # fmt: skip

_RUBY = [
    Row("ruby", "an empty body", "def f(a)\n  ‸\nend\n", "b = a\n  b\nend\n\ndef g", "b = a\n  b"),
    Row("ruby", "an empty body that nothing ends", "def f(a)\n  ‸\n", "a\nend\n\ndef g", "a\nend"),
    Row("ruby", "a block", "a.each do |b|\n  ‸\nend\n", "if b\n    c\n  end\nend\n", "if b\n    c\n  end"),
    Row("ruby", "the end of a statement", "x = ‸\ny = 2\n", "1\ny = 2\n", "1"),
    Row("ruby", "the next line again", "def f\n  ‸\n  x\nend\n", "y = 1\n  x\nend\n", "y = 1"),
    Row("ruby", "the indentation again", "def f\n  ‸\nend\n", "  x\nend\n", "x"),
    Row("ruby", "white space", "def f\n  ‸\nend\n", "  \n\n", ""),
    Row("ruby", "in a comment", "# a (‸\nx = 1\n", "b) c\nx = 1", "b) c"),
    Row("ruby", "the line in circles", "def f\n  ‸\nend\n", "x = 1\n  " * 5, "x = 1\n  x = 1"),
    Row("ruby", "code in a string", 'x = "#{f(‸)}"\n', 'h["a"])}"\n', 'h["a"]'),
]

_BASH = [
    Row("bash", "an empty body", "if [ $a ]; then\n  ‸\nfi\n", 'echo "$a"\n  exit 1\nfi\nls', 'echo "$a"\n  exit 1'),
    Row("bash", "an empty body that nothing ends", "for a in b; do\n  ‸\n", "echo $a\ndone\nls", "echo $a\ndone"),
    Row("bash", "a function", "f() {\n  ‸\n}\n", "echo 1\n}\nf", "echo 1"),
    Row("bash", "the end of a statement", "x=‸\ny=2\n", "1\ny=2\n", "1"),
    Row("bash", "a quote that is there", 'echo "‸"\n', 'a (b"\nls', "a (b"),
    Row("bash", "a bracket that is there", "x=${‸}\n", "a:-1}\nls", "a:-1"),
    Row("bash", "the middle of an expression", "a | ‸ | c\n", "b | c\nls", "b"),
    Row("bash", "the next line again", "f() {\n  ‸\n  exit 1\n}\n", "ls\n  exit 1\n}", "ls"),
    Row("bash", "the indentation again", "f() {\n  ‸\n}\n", "  ls\n}", "ls"),
    Row("bash", "the line in circles", "f() {\n  ‸\n}\n", "ls\n  " * 5, "ls\n  ls"),
    Row("bash", "white space", "f() {\n  ‸\n}\n", "   \n", ""),
    Row("bash", "in a comment", "# a {‸\nls\n", "b} c\nls", "b} c"),
    Row("bash", "a case", "case $x in\n  ‸\nesac\n", "a) ls ;;\n  b) rm ;;\nesac\n", "a) ls ;;\n  b) rm ;;"),
]  # fmt: skip

_HTML = [
    Row("html", "an empty element", "<ul>\n  ‸\n</ul>\n", "<li>a</li>\n  <b>c</b>\n</ul>\n", "<li>a</li>\n  <b>c</b>"),
    Row("html", "an element that nothing closes", "<ul>\n  ‸\n", "<li>a</li>\n</ul>\n<p>b</p>", "<li>a</li>\n</ul>"),
    Row("html", "a tag that is closed", "<p>‸</p>\n", "Don't (do</p>\n<p>", "Don't (do"),
    Row("html", "a quote that is there", '<a href="‸">\n', 'b.html">x</a>', "b.html"),
    Row("html", "the end of a line", "<p>‸\n", "a</p>\n<p>b</p>", "a</p>"),
    Row("html", "the next line again", "<ul>\n  ‸\n  <li>b</li>\n</ul>\n", "<li>a</li>\n  <li>b</li>\n", "<li>a</li>"),
    Row("html", "the indentation again", "<ul>\n  ‸\n</ul>\n", "  <li>a</li>\n</ul>", "<li>a</li>"),
    Row("html", "the line in circles", "<ul>\n  ‸\n</ul>\n", "<li>a</li>\n  " * 5, "<li>a</li>\n  <li>a</li>"),
    Row("html", "white space", "<ul>\n  ‸\n</ul>\n", "  \n", ""),
    Row("html", "in a comment", "<!-- a ‸ -->\n", "</b> c --> d", "</b> c"),
    Row("html", "in a script", "<script>\n  f(‸)\n</script>\n", "a, g(b))\n", "a, g(b)"),
    Row("html", "in a style", "<style>\n  a {\n    ‸\n  }\n</style>\n", "color: red;\n  }\n", "color: red;"),
]  # fmt: skip

_JSON = [
    Row("json", "an empty object", '{\n  ‸\n}\n', '"a": 1,\n  "b": [2]\n}\n{', '"a": 1,\n  "b": [2]'),
    Row("json", "an object that nothing closes", '{\n  ‸', '"a": 1\n}\n{', '"a": 1\n}'),
    Row("json", "the end of a member", '{\n  "a": ‸\n}\n', '1\n}\n', "1"),
    Row("json", "a member of several lines", '{\n  "a": ‸\n}\n', '[\n    1\n  ],\n  "b": 2\n', "[\n    1\n  ],"),
    Row("json", "a quote that is there", '{"a": "‸"}\n', 'b (c"}\n', "b (c"),
    Row("json", "a quote that is not there", '{"a‸ "c"}\n', 'b": "c"}\n', 'b":'),
    Row("json", "a bracket that is there", '{"a": [‸]}\n', "1, [2]]}\n", "1, [2]"),
    Row("json", "the middle of a list", '[1, ‸, 3]\n', "2, 3]\n", "2"),
    Row("json", "the next line again", '{\n  ‸\n  "b": 2\n}\n', '"a": 1,\n  "b": 2\n}', '"a": 1,'),
    Row("json", "the indentation again", "{\n  ‸\n}\n", '  "a": 1\n}', '"a": 1'),
    Row("json", "no second space", '{"a": ‸}\n', " 1}", "1"),
    Row("json", "the line in circles", "[\n  ‸\n]\n", '"a",\n  ' * 5, '"a",\n  "a",'),
    Row("json", "white space", "{\n  ‸\n}\n", "  \n", ""),
    Row("json", "in a comment", '{\n  // a ‸\n  "b": 1\n}\n', '} b\n  "b": 1', "} b"),
]  # fmt: skip

_YAML = [
    Row("yaml", "an empty mapping", "a:\n  ‸\n", "b: 1\n  c:\n    - d\ne: 2\n", "b: 1\n  c:\n    - d"),
    Row("yaml", "a list right below its key", "a:\n‸\n", "- b\n- c\nd: 1\n", "- b\n- c"),
    Row("yaml", "a mapping at the margin", "a:\n‸\n", "  b: 1\nc: 1\n", "  b: 1"),
    Row("yaml", "the end of an entry", "a: ‸\nb: 2\n", "1\nb: 2\n", "1"),
    Row("yaml", "a key's mapping", "a‸\n", ":\n  b: 1\nc: 2\n", ":\n  b: 1"),
    Row("yaml", "a bracket that is there", "a: [‸]\n", "1, 2]\n", "1, 2"),
    Row("yaml", "a quote that is there", 'a: "‸"\n', 'b (c"\n', "b (c"),
    Row("yaml", "the middle of a list", "a: [1, ‸, 3]\n", "2, 3]\n", "2"),
    Row("yaml", "an apostrophe", "a:\n  ‸\n", "b: don't (do\nc: 1\n", "b: don't (do"),
    Row("yaml", "the next line again", "a:\n  ‸\n  c: 2\n", "b: 1\n  c: 2\n", "b: 1"),
    Row("yaml", "the indentation again", "a:\n  ‸\n", "  b: 1\n", "b: 1"),
    Row("yaml", "no second space", "a: ‸\n", " 1\n", "1"),
    Row("yaml", "the line in circles", "a:\n  ‸\n", "- b\n  " * 5, "- b\n  - b"),
    Row("yaml", "white space", "a:\n  ‸\n", "  \n\n", ""),
    Row("yaml", "in a comment", "# a [‸\nb: 1\n", "c] d\nb: 1", "c] d"),
]

_PROSE = [
    Row("", "a paragraph", "Intro.\n\n‸\n", "One (two\nthree.\n\nFour.", "One (two\nthree."),
    Row("", "the end of a line", "It is ‸\n", "one thing (or.\nAnother", "one thing (or."),
    Row("", "the middle of a line", "Not ‸`≠`\n", "equal`≠`\n", "equal"),
    Row("", "an apostrophe", "‸\n", "Don't (do\nthat.\n\nNow", "Don't (do\nthat."),
    Row("", "the next line again", "‸\nThe end.\n", "A start.\nThe end.\n", "A start."),
    Row("", "no second space", "It is ‸\n", " so.", "so."),
    Row("", "no second space behind", "It‸ so.\n", " is ", " is"),
    Row("", "the line in circles", "‸\n", "And so on.\n" * 5, "And so on.\nAnd so on."),
    Row("", "white space", "It is ‸\n", "  \n", ""),
    Row("", "white space behind", "It is ‸\n", "so.  \n\n", "so."),
]

_MARKDOWN = [
    Row("markdown", "code in a fence", "```python\ndef f():\n    ‸\n```\n", "return 1\n\ndef g", "return 1"),
    Row("markdown", "a bracket in a fence", "```js\nf(‸)\n```\n", "a, g(b))\n", "a, g(b)"),
    Row("markdown", "behind a fence", "```js\nf(\n```\n‸\n", "Don't (do.\n\nNow", "Don't (do."),
    Row("markdown", "a list", "- a\n‸\n", "- b\n- c\n\nText", "- b\n- c"),
]

ROWS: list[Row] = [
    *(row for language, texts in _BRACES.items() for row in _braces(language, *texts)),
    *(row for language, before in _CALLS.items() for row in _calls(language, before)),
    *_PYTHON,
    *_RUBY,
    *_BASH,
    *_HTML,
    *_JSON,
    *_YAML,
    *(row._replace(language=language) for language in ("markdown", "plaintext", "brainfuck") for row in _PROSE),
    *_MARKDOWN,
]
