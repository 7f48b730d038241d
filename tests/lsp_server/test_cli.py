"""The command line without models: what is understood, and what a mistake, a fault and a closed pipe come to."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lsp_server.cli import main

COMMANDS = (
    "serve",
    "complete",
    "demo",
    "bench",
    "evaluate",
    "prove",
    "train",
    "doctor",
    "pairs",
    "export",
    "adaptation",
)


def lines(text: str) -> list[str]:
    return text.splitlines()


# Buffered, as stdout is for users: what fails when the interpreter flushes at its end shows only so.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def specter(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lsp_server", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=BUFFERED, **options)


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """A line of sh, where `specter` is ours."""
    program = f'specter() {{ "{sys.executable}" -m lsp_server "$@"; }}\n'
    return subprocess.run(
        ["sh", "-c", program + line], capture_output=True, text=True, timeout=120, check=False, env=BUFFERED
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two lines and an empty one."""
    path = tmp_path / "app.py"
    path.write_bytes(b"x = 1\r\ny = x\n")
    return path


def test_help_lists_every_command(capsys):
    """Failed with a command left out of COMMANDS."""
    assert main(["--help"]) == 0
    out, err = capsys.readouterr()
    assert all(re.search(rf"^    {name}\s", out, re.MULTILINE) for name in COMMANDS)
    assert not err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    """Failed with a `%` in a help text."""
    assert main([command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: specter {command}")
    assert not err


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("specter 0.")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["no command", "specter demo"]),
        (["complte"], ["'complte'", "did you mean `specter complete`?"]),
        (["frobnicate"], ["'frobnicate'", "use one of", "complete"]),
        (["--pair", "x", "complete"], ["--pair", "behind the command"]),
        (["--frob"], ["--frob", "specter --help"]),
        (["complete"], ["required: FILE:LINE:COL", "specter complete --help"]),
        (["complete", "a.py:1:1", "b.py:1:1"], ["'b.py:1:1'", "too many"]),
        (["complete", "a.py:1:1", "--tempreature", "1"], ["--tempreature", "did you mean --temperature?"]),
        (["complete", "a.py:1:1", "--tempreature=1"], ["--tempreature is", "did you mean --temperature?"]),
        (["complete", "a.py:1:1", "--temp", "1"], ["--temp is no option"]),  # no abbreviations
        (["complete", "a.py:1:1", "--seed"], ["--seed", "expected one argument"]),
        (["complete", "a.py:1:1", "--seed", "one"], ["--seed", "'one' is not a whole number"]),
        (["complete", "a.py:1:1", "--temperature", "hot"], ["--temperature", "'hot' is not a number"]),
        (["complete", "a.py:1:1", "--temperature", "-1"], ["--temperature", "from 0 to 100"]),
        (["complete", "a.py:1:1", "--temperature", "nan"], ["--temperature"]),
        (["complete", "a.py:1:1", "--top-p", "2"], ["--top-p", "up to 1"]),
        (["complete", "a.py:1:1", "--max-tokens", "0"], ["--max-tokens", "from 1 to"]),
        (["complete", "a.py:1:1", "--draft-length", "99"], ["--draft-length", "auto"]),
        (["complete", "a.py:1:1", "--device", "mps"], ["--device", "'mps'", "cuda", "cpu"]),
        (["complete", "a.py:1:1", "--dtype", "int4"], ["--dtype", "float32"]),
        (["complete", "a.py:1:1", "--mode", "beam"], ["--mode", "greedy", "sampled"]),
        (["complete", "a.py:1:1", "--drafter", "oracle"], ["--drafter", "model"]),
        (["serve", "--tcp", "7700"], ["--tcp", "'7700'", "127.0.0.1:7700"]),
        (["serve", "--tcp", "localhost:http"], ["--tcp", "HOST:PORT"]),
        (["serve", "--tcp", "127.0.0.1:70000"], ["--tcp", "HOST:PORT"]),
        (["serve", "--tcp", "127.0.0.1:0", "--stdio"], ["--stdio and --tcp"]),
        (["serve", "--mode", "beam"], ["--mode"]),
        (["prove", "--draws", "0"], ["--draws", "1 or more"]),
        (["prove", "--draws", "many"], ["--draws", "'many'"]),
        (["prove", "--plot", "picture.bmp"], ["--plot", ".png or .svg"]),
        (["prove", "--plot", "no/such/folder/p.png"], ["--plot", "folder that exists"]),
        (["bench", "--holes", "0"], ["--holes", "1 or more"]),
        (["bench", "--corpus", "."], ["--corpus", "0 holes"]),
        (["bench", "--corpus", "a", "b"], ["--corpus", "--drafters"]),
        (["export"], ["required: DIR"]),
        (["pairs", "--frob"], ["--frob is no option of `specter pairs`"]),
    ],
)
def test_a_mistake_is_one_line_and_2(arguments, parts, capsys, monkeypatch, tmp_path):
    """Failed with argparse's own `error`, which prints the usage first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert len(lines(err)) == 1
    assert err.startswith("specter: ")
    assert [part for part in parts if part not in err] == []


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        ("{file}", ["FILE:LINE:COL"]),
        ("{file}:1", ["FILE:LINE:COL"]),
        ("{file}:one:1", ["FILE:LINE:COL"]),
        ("{file}:-1:1", ["FILE:LINE:COL"]),
        (":1:1", ["FILE:LINE:COL"]),
        ("{file}:0:1", ["no line 0", "1 to 3"]),
        ("{file}:4:1", ["no line 4", "1 to 3"]),
        ("{file}:1:0", ["no column 0", "1 to 6"]),
        ("{file}:1:7", ["line 1", "no column 7", "1 to 6"]),
        ("{file}:3:2", ["no column 2", "1 only"]),
        ("{folder}/none.py:1:1", ["does not exist"]),
        ("{folder}:1:1", ["is a folder"]),
        ("{folder}/app.py/x:1:1", ["cannot be read"]),
        ("{folder}/binary:1:1", ["binary", "NUL"]),
        ("{folder}/latin:1:3", ["not UTF-8", "0xe9 at offset 2"]),
    ],
)
def test_a_place_that_is_none(place, parts, source, capsys):
    """Failed without the check of the column, which then was taken from the line below."""
    (source.parent / "binary").write_bytes(b"a\0b")
    (source.parent / "latin").write_bytes("caé".encode("latin-1"))
    assert main(["complete", place.format(file=source, folder=source.parent)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert len(lines(err)) == 1
    assert [part for part in parts if part not in err] == []


def command_that(monkeypatch: pytest.MonkeyPatch, outcome: object) -> None:
    """Makes `specter pairs` raise or return."""

    def run(arguments: object) -> object:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr("lsp_server.commands.pairs.run", run)


def test_our_fault_is_one_line_and_1(monkeypatch, capsys):
    """Failed with the exception's message in the line: it may quote the user's code."""
    command_that(monkeypatch, RuntimeError("secret code"))
    assert main(["pairs"]) == 1
    err = capsys.readouterr().err
    assert len(lines(err)) == 1
    assert "RuntimeError" in err
    assert "SPECTER_LOG=debug" in err
    assert "secret code" not in err


def test_debug_shows_the_traceback(monkeypatch, capsys):
    monkeypatch.setenv("SPECTER_LOG", "debug")
    command_that(monkeypatch, RuntimeError("wanted"))
    assert main(["pairs"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "wanted" in err


def test_an_interrupt_is_quiet(monkeypatch, capsys):
    command_that(monkeypatch, KeyboardInterrupt())
    assert main(["pairs"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_full_disk_is_the_users(monkeypatch, capsys):
    command_that(monkeypatch, OSError(28, "No space left on device"))
    assert main(["pairs"]) == 2
    assert "no space" in capsys.readouterr().err


def test_the_commands_exit_code_is_ours(monkeypatch):
    command_that(monkeypatch, 1)
    assert main(["pairs"]) == 1


def test_a_character_the_terminal_lacks(monkeypatch):
    """Failed without `reconfigure`: an ASCII stdout raised UnicodeEncodeError."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["pairs", "--help"]) == 0
    monkeypatch.setattr("lsp_server.commands.pairs.run", lambda _: print("naïve … 🦀") or 0)
    assert main(["pairs"]) == 0
    assert raw.getvalue().endswith(b"na?ve ? ?\n")


@pytest.mark.parametrize("argument", ["pairs", "--help"])
def test_a_closed_pipe_is_quiet(argument):
    """Failed without `_forget`: the interpreter complained when it flushed at its end."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "lsp_server", argument]
    with os.fdopen(write, "wb") as stdout:
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False, env=BUFFERED)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("argument", ["--version", "--help", "pairs", "pairs --json"])
def test_an_output_without_room_is_one_line_and_2(argument):
    done = shell(f"specter {argument} >/dev/full")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "specter: no space is left where the output goes; free some and try again\n"


@pytest.mark.skipif(sys.platform == "win32", reason="sh closes them")
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("specter --version >&-", 2, "specter: stdout is closed; leave it open, or send it to a file or a pipe\n"),
        ("specter pairs >&-", 2, "specter: stdout is closed; leave it open, or send it to a file or a pipe\n"),
        ("specter --version <&- >/dev/null", 0, ""),
        ("specter serve <&-", 1, ""),  # the end of input before `exit`
        ("specter serve <&- >&-", 1, ""),
        ("specter frobnicate 2>&-", 2, ""),
        ("specter frobnicate 2>&- >&- <&-", 2, ""),
        ("specter --version 2>&- >/dev/null", 0, ""),
    ],
)
def test_closed_streams(line, code, said):
    """Python has None for them: failed with an AttributeError, an OSError, and an error line on stdout."""
    done = shell(line)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_an_error_that_cannot_be_said():
    assert shell("specter frobnicate 2>/dev/full").returncode == 2


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_an_interrupt_while_the_command_line_is_imported():
    """Failed with the imports before the first `try`."""
    script = (
        "import builtins, os, signal\n"
        "plain = builtins.__import__\n"
        "def interrupted(name, *rest, **kw):\n"
        "    if name == 'argparse':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return plain(name, *rest, **kw)\n"
        "builtins.__import__ = interrupted\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored by what sh starts beside itself
        "from lsp_server.__main__ import main\n"
        "raise SystemExit(main())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_starting_imports_no_torch():
    """Failed with `import torch` at the top of commands/options.py."""
    script = (
        "import sys, lsp_server.cli as cli; cli.main(['complete', 'none.py:1:1']);"
        "from lsp_server import serve;"
        "print([name for name in ('torch', 'transformers', 'rich', 'pygls', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert lines(done.stdout)[-1] == "[]"


@pytest.mark.parametrize(
    ("option", "said", "imported"),
    [
        ("--target no/such/model", "--target: no/such/model is not a model folder", "[]"),
        ("--target x.gguf", "--target: x.gguf does not exist", "[]"),
        ("--draft /none", "--draft: /none is not a model folder", "[]"),
        ("--pair nonesuch", "--pair: 'nonesuch' is unknown", "[]"),
        ("--target a-b/c-d", "--target: a-b/c-d is not on this machine: HF_HUB_OFFLINE is set", "[]"),
        ("--drafter model --target a-b/c-d", "--drafter: 'model' needs a draft model", "[]"),
        ("--device cuda", "--device: cuda is not available", "['torch']"),
    ],
)
def test_what_cannot_be_is_said_before_libraries_are_imported(option, said, imported, source):
    """Seen to fail: 12 s for a path, 6 s for the device."""
    script = (
        "import sys, os; os.environ['CUDA_VISIBLE_DEVICES'] = ''; import lsp_server.cli as cli;"
        "cli.main(sys.argv[1:]); print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    command = [sys.executable, "-c", script, "complete", f"{source}:1:1", *option.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.startswith(f"specter: {said}")
    assert len(lines(done.stderr)) == 1
    assert lines(done.stdout) == [imported]


@pytest.mark.skipif(sys.platform == "win32", reason="pipes with names")
def test_what_may_never_end_is_no_file(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", "/dev/zero", "/dev/stdin"):
        assert main(["complete", f"{name}:1:1"]) == 2
        err = capsys.readouterr().err
        assert err == f"specter: {name} is a device or a pipe; give a regular file\n"


def test_a_file_of_any_size_is_read_up_to_a_bound(tmp_path, capsys):
    large = tmp_path / "large.py"
    large.touch()
    os.truncate(large, 1 << 40)  # takes no room on the disk
    assert main(["complete", f"{large}:1:1"]) == 2
    assert capsys.readouterr().err == f"specter: {large} is larger than 64 MB; give a file that people wrote\n"


def test_absurd_numbers(source, capsys):
    """int() of 5000 digits raises ValueError; failed without a bound on the digits."""
    assert main(["complete", f"{source}:{'9' * 5000}:1"]) == 2
    assert len(lines(capsys.readouterr().err)) == 1


class TestServe:
    """What the command hands to the server."""

    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
        from lsp_server import serve

        calls: list[tuple[object, ...]] = []
        monkeypatch.setattr(serve, "serve_stdio", lambda *given: calls.append(given) or 0)
        monkeypatch.setattr(serve, "serve_tcp", lambda *given: calls.append(given) or 0)
        return calls

    def test_stdio_is_the_default(self, calls):
        assert main(["serve"]) == 0
        assert main(["serve", "--stdio"]) == 0
        assert calls == [({},), ({},)]

    def test_only_given_options_override(self, calls):
        """Failed with EngineConfig's defaults in the namespace: they would win over the editor's settings."""
        assert main(["serve", "--device", "cpu", "--max-tokens", "9", "--draft-length", "2"]) == 0
        assert calls == [({"device": "cpu", "max_tokens": 9, "draft_length": 2},)]

    @pytest.mark.parametrize("option", ["temperature", "top-p", "top-k", "min-p"])
    def test_a_sampling_option_implies_sampled(self, option, calls):
        main(["serve", f"--{option}", "1"])
        assert calls[0][0]["mode"] == "sampled"

    def test_a_given_mode_stays(self, calls):
        main(["serve", "--temperature", "1", "--mode", "greedy"])
        main(["serve", "--seed", "1"])
        assert calls == [({"temperature": 1.0, "mode": "greedy"},), ({"seed": 1},)]

    @pytest.mark.parametrize(
        ("text", "address"), [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:77", ("::1", 77)), ("::1:77", ("::1", 77))]
    )
    def test_tcp(self, text, address, calls):
        assert main(["serve", "--tcp", text, "--device", "cpu"]) == 0
        assert calls == [(*address, {"device": "cpu"}, None)]

    def test_a_token_from_a_file(self, calls, tmp_path):
        (tmp_path / "token").write_text("0123456789abcdef\n")
        assert main(["serve", "--tcp", "0.0.0.0:7", "--token-file", str(tmp_path / "token")]) == 0
        assert calls == [("0.0.0.0", 7, {}, "0123456789abcdef")]

    @pytest.mark.parametrize("content", [None, b"", b"short", b"\xff" * 20, b"two lines of text\nare none"])
    def test_no_token_in_the_file(self, calls, tmp_path, content, capsys):
        file = tmp_path / "token"
        if content is not None:
            file.write_bytes(content)
        assert main(["serve", "--tcp", "127.0.0.1:7", "--token-file", str(file)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"specter: --token-file: {file} ")
        assert calls == []

    def test_a_token_is_for_tcp(self, calls, tmp_path, capsys):
        assert main(["serve", "--token-file", str(tmp_path)]) == 2
        assert "--tcp" in capsys.readouterr().err

    def test_a_server_that_cannot_start(self, monkeypatch, capsys):
        from lsp_server import serve

        def serve_tcp(*_: object) -> int:
            raise serve.ServeError("cannot listen on 127.0.0.1:1; choose another port")

        monkeypatch.setattr(serve, "serve_tcp", serve_tcp)
        assert main(["serve", "--tcp", "127.0.0.1:1"]) == 2
        assert capsys.readouterr().err == "specter: --tcp: cannot listen on 127.0.0.1:1; choose another port\n"


def test_python_m_is_the_same_program():
    done = specter("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("specter ")


def test_every_engine_option_is_a_field():
    """Failed with a misspelt option."""
    from dataclasses import fields

    from engine.config import EngineConfig
    from lsp_server.commands.options import _OPTIONS

    derived = {"fallback", "adaptation"}  # from what else is given, and --adapt
    assert list(_OPTIONS) == [field.name for field in fields(EngineConfig) if field.name not in derived]


def test_the_log_keeps_other_libraries_quiet(monkeypatch):
    """Failed with the level set on the root logger: pygls logs whole messages, with the user's code in them."""
    import logging

    from lsp_server import log

    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    for name, expected in (("debug", True), ("DEBUG", True), ("nonsense", False), ("", False)):
        monkeypatch.setenv("SPECTER_LOG", name)
        log.set_up()
        assert logging.getLogger("engine.decoder").isEnabledFor(logging.DEBUG) is expected
        assert logging.getLogger("engine.decoder").isEnabledFor(logging.WARNING)
        assert not logging.getLogger("pygls").isEnabledFor(logging.INFO)
