"""What the rules know of each language: its strings and comments, how its blocks begin and end, its names.

Facts of lexing only. A grammar is not asked at a keystroke: of code that is being written, what a lexer says stays
true when the text grows, and the tests hold it against tree-sitter's trees.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Literal

Blocks = Literal["indent", "braces", "words", "tags", "prose"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch that brackets do not count in: `opens` is a regular expression, `closes` the text that ends it.

    `opens` begins with a literal character, which is searched for; what must stand before it is looked at behind it.

    One that is not `multiline` ends with its line all the same. `hole` begins code within (`${` in a template); the
    bracket that ends that code brings the span back.
    """

    opens: str
    closes: str
    kind: Literal["string", "comment"] = "string"
    multiline: bool = False
    escape: bool = True  # a backslash takes the next character's meaning
    hole: str = ""


@dataclass(frozen=True, slots=True)
class Language:
    """`opener` matches a line (strings and comments blanked) after which a body comes; `goes_on` the beginning of a
    line that belongs to the statement before it; `unfinished` the end of a line whose statement goes on."""

    name: str
    blocks: Blocks
    spans: tuple[Span, ...] = ()
    opener: re.Pattern[str] | None = None
    goes_on: re.Pattern[str] | None = None
    unfinished: re.Pattern[str] | None = None
    closing_word: re.Pattern[str] | None = None  # the beginning of a line that ends a block of words
    regex: bool = False  # a slash may begin a regular expression
    heredoc: re.Pattern[str] | None = None
    brackets: str = "()[]{}"
    alone: str = ""  # closing brackets that need no opening one
    grammar: str = ""  # tree-sitter's name for it, by which the tests ask
    ids: tuple[str, ...] = ()  # of LSP
    endings: tuple[str, ...] = field(default=())


def _comment(opens: str, closes: str = "\n") -> Span:
    return Span(opens, closes, "comment", closes != "\n", escape=False)


_DOUBLE, _SINGLE = Span('"', '"'), Span("'", "'")
_C_COMMENTS = (_comment("//"), _comment(r"/\*", "*/"))
_HASH = _comment("#")
_WORD_HASH = _comment(r"#(?<![^\s;&|()]#)")  # of a shell: `$#` and `a#b` begin none

_C_GOES_ON = re.compile(r"[.?:{&|+*/%<>=^]|-[^-]|(?:else|catch|finally|while)\b|!=|instanceof\b|throws\b|where\b")
_C_UNFINISHED = re.compile(r"(?:[,.=(\[{&|?:+\-*/%<>!~^]|\b(?:else|return|throw|new|in|of|do|try|extends))\s*\Z")
_C_OPENER = re.compile(r"\{\s*\Z")
_PY_GOES_ON = re.compile(r"(?:else|elif|except|finally|case)\b")

_NOTEBOOK = ".ipynb"

PLAIN = Language("plaintext", "prose", ids=("plaintext",), endings=(".txt",), brackets="")

_PYTHON = Language(
    "python",
    "indent",
    (
        Span('"""', '"""', multiline=True),
        Span("'''", "'''", multiline=True),
        _DOUBLE,
        _SINGLE,
        _HASH,
    ),
    opener=re.compile(r":\s*\Z"),
    goes_on=_PY_GOES_ON,
    unfinished=re.compile(r"\\\Z"),
    grammar="python",
    ids=("python",),
    endings=(".py", ".pyi", ".pyw"),
)
_C = Language(
    "c",
    "braces",
    (*_C_COMMENTS, _DOUBLE, _SINGLE),
    opener=_C_OPENER,
    goes_on=_C_GOES_ON,
    unfinished=_C_UNFINISHED,
    grammar="c",
    ids=("c",),
    endings=(".c", ".h"),
)
_JAVASCRIPT = replace(
    _C,
    name="javascript",
    spans=(*_C_COMMENTS, _DOUBLE, Span(r"'(?<!\w')", "'"), Span("`", "`", multiline=True, hole="${")),  # no JSX don't
    regex=True,
    grammar="javascript",
    ids=("javascript", "javascriptreact"),
    endings=(".js", ".jsx", ".mjs", ".cjs"),
)
_RUST_CHAR = Span(r"'(?=\\|[^\w\s]|\w')", "'")  # and not a lifetime

LANGUAGES: tuple[Language, ...] = (
    _PYTHON,
    _JAVASCRIPT,
    replace(_JAVASCRIPT, name="typescript", grammar="typescript", ids=("typescript",), endings=(".ts", ".mts", ".cts")),
    replace(_JAVASCRIPT, name="tsx", grammar="tsx", ids=("typescriptreact",), endings=(".tsx",)),
    replace(
        _C,
        name="go",
        spans=(*_C_COMMENTS, _DOUBLE, _SINGLE, Span("`", "`", multiline=True, escape=False)),
        goes_on=re.compile(r"\Z(?!)"),  # its statements end with their line
        unfinished=re.compile(r"[,.(\[{&|+\-*/%<>=^:]\s*\Z"),
        grammar="go",
        ids=("go",),
        endings=(".go",),
    ),
    replace(
        _C,
        name="rust",
        spans=(
            *_C_COMMENTS,
            Span('##"(?<=r##")', '"##', multiline=True, escape=False),
            Span('#"(?<=r#")', '"#', multiline=True, escape=False),
            Span('"(?<=r")', '"', multiline=True, escape=False),
            Span('"', '"', multiline=True),
            _RUST_CHAR,
        ),
        grammar="rust",
        ids=("rust",),
        endings=(".rs",),
    ),
    replace(
        _C,
        name="java",
        spans=(*_C_COMMENTS, Span('"""', '"""', multiline=True), _DOUBLE, _SINGLE),
        grammar="java",
        ids=("java",),
        endings=(".java",),
    ),
    _C,
    replace(
        _C,
        name="cpp",
        spans=(
            *_C_COMMENTS,
            Span(r'"\((?<=R"\()', ')"', multiline=True, escape=False),
            _DOUBLE,
            Span(r"'(?<![\da-fA-F]')", "'"),
        ),
        grammar="cpp",
        ids=("cpp", "cuda-cpp"),
        endings=(".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx", ".cu", ".cuh"),
    ),
    replace(
        _C,
        name="csharp",
        spans=(
            *_C_COMMENTS,
            Span('"""', '"""', multiline=True, escape=False),
            Span(r'"(?<=\$")', '"', hole="{"),
            Span(r'"(?:(?<=@")|(?<=@\$"))', '"', multiline=True, escape=False),
            _DOUBLE,
            _SINGLE,
        ),
        grammar="csharp",
        ids=("csharp",),
        endings=(".cs",),
    ),
    Language(
        "ruby",
        "words",
        (
            Span(r"%(?<![\w)\]]%)[wWiIqQrx]?\[", "]", multiline=True),
            Span(r"%(?<![\w)\]]%)[wWiIqQrx]?\(", ")", multiline=True),
            Span(r"%(?<![\w)\]]%)[wWiIqQrx]?\{", "}", multiline=True),
            Span(r"=begin(?<![^\n]=begin)", "\n=end", "comment", True, False),
            _HASH,
            Span('"', '"', multiline=True, hole="#{"),
            _SINGLE,
        ),
        opener=re.compile(
            r"^\s*(?:def\s+(?!.*=\s)|class|module|if|unless|while|until|for|begin|case|else|elsif|when|rescue|ensure|in)\b(?!.*\bend\b)"
            r"|\b(?:do|begin|then|if|case)(?:\s*\|[^|]*\|)?\s*\Z|=\s*(?:if|case|begin|unless)\b|\{(?:\s*\|[^|]*\|)?\s*\Z"
        ),
        goes_on=re.compile(r"(?:else|elsif|when|rescue|ensure|in)\b|&?\.\w"),
        unfinished=re.compile(r"(?:[,.=(\[{&|+\-*/%<>?:\\])\s*\Z"),
        closing_word=re.compile(r"end\b"),
        heredoc=re.compile(r"<<[~-]?(['\"`]?)([A-Z_]\w*)\1"),
        regex=True,
        grammar="ruby",
        ids=("ruby",),
        endings=(".rb", ".rake", ".gemspec"),
    ),
    replace(
        _C,
        name="php",
        spans=(*_C_COMMENTS, _comment(r"#(?!\[)"), Span('"', '"', multiline=True), Span("'", "'", multiline=True)),
        heredoc=re.compile(r"<<<\s*(['\"]?)([A-Za-z_]\w*)\1"),
        grammar="php",
        ids=("php",),
        endings=(".php",),
    ),
    Language(
        "bash",
        "words",
        (
            _WORD_HASH,
            Span(r'"(?<!\\")', '"', multiline=True, hole="$("),
            Span(r"'(?<=\$')", "'", multiline=True),
            Span(r"'(?<!\\')", "'", multiline=True, escape=False),
        ),
        opener=re.compile(r"(?:\b(?:then|do|else|in)|\{|\()\s*\Z|^\s*[^\s()]+(?:\s*\|\s*[^\s()]+)*\)\s*\Z"),
        goes_on=re.compile(r"(?:then|do|else|elif|esac)\b|;;|[|&]"),
        unfinished=re.compile(r"(?:\\|\||&&|\{|\()\s*\Z"),
        closing_word=re.compile(r"(?:fi|done|esac)\b|\}|\)"),
        heredoc=re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1"),
        alone=")",  # ends a pattern of a case
        grammar="bash",
        ids=("shellscript",),
        endings=(".sh", ".bash", ".zsh", ".ksh"),
    ),
    Language(
        "html",
        "tags",
        (_comment("<!--", "-->"), Span(r'"(?<==")', '"', multiline=True), Span("'(?<==')", "'", multiline=True)),
        brackets="",
        grammar="html",
        ids=("html", "vue", "svelte", "xml"),
        endings=(".html", ".htm", ".xhtml", ".xml", ".svg", ".vue"),
    ),
    replace(
        _C,
        name="css",
        spans=(_comment(r"/\*", "*/"), _DOUBLE, _SINGLE),
        goes_on=re.compile(r"\{"),
        unfinished=re.compile(r"[,{:(>+~]\s*\Z"),
        grammar="css",
        ids=("css", "scss", "less"),
        endings=(".css", ".scss", ".less"),
    ),
    replace(
        _C,
        name="json",
        spans=(*_C_COMMENTS, _DOUBLE),
        goes_on=re.compile(r"\Z(?!)"),
        unfinished=re.compile(r"[{\[:]\s*\Z"),
        grammar="json",
        ids=("json", "jsonc", "json5", "jsonl"),
        endings=(".json", ".jsonc", ".json5", _NOTEBOOK),
    ),
    Language(
        "yaml",
        "indent",
        (_WORD_HASH, Span(r'"(?<![^\s\[{,:]")', '"', multiline=True), Span(r"'(?<![^\s\[{,:]')", "'", escape=False)),
        opener=re.compile(r":(?:\s+[|>][-+0-9]*)?\s*\Z|^\s*-\s*\Z"),
        goes_on=re.compile(r"\Z(?!)"),
        brackets="[]{}",
        grammar="yaml",
        ids=("yaml", "dockercompose", "github-actions-workflow"),
        endings=(".yaml", ".yml"),
    ),
    Language("markdown", "prose", brackets="", grammar="markdown", ids=("markdown",), endings=(".md", ".markdown")),
    PLAIN,
)

_BY_ID = {id_: language for language in LANGUAGES for id_ in (language.name, *language.ids)}
_BY_ENDING = {ending: language for language in LANGUAGES for ending in language.endings}


def language_of(language_id: str, path: str = "") -> Language:
    """The language an editor calls `language_id`; unknown, that of the file's ending; unknown too, plain text."""
    known = _BY_ID.get(language_id)
    if known is not None and known is not PLAIN:
        return known
    return _BY_ENDING.get(_ending(path), PLAIN)


def telling(path: str, language_id: str) -> str:
    """The path with an ending that tells its language: a notebook's says nothing of its cells, and what was never saved
    has none. Models take the language from the path.
    """
    language, ending = language_of(language_id), _ending(path)
    if language is PLAIN or not path or (ending in _BY_ENDING and ending != _NOTEBOOK):
        return path
    return (path[: -len(ending)] if ending == _NOTEBOOK else path) + language.endings[0]


def _ending(path: str) -> str:
    """ ".py", in lower case, or "" """
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    return "." + name.rpartition(".")[2] if "." in name else ""
