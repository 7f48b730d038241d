"""llama.cpp's own HTTP server in a process of its own, from the package xllamacpp, which brings it built.

`python -m engine.bench.llama_server MODEL.gguf` prints its address once it listens, and what of the processor it was
built to use; it ends with its standard input.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


def installed() -> bool:
    return find_spec("xllamacpp") is not None


class LlamaServer:
    """A server that was started: its address, and what its build makes use of. Raises OSError if it does not start."""

    def __init__(self, model: Path, *options: str) -> None:
        command = [sys.executable, "-m", "engine.bench.llama_server", str(model), *options]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("GOMP_SPINCOUNT", None)  # ours: it has OpenMP's own
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        assert self._process.stdout is not None
        self.url, _, self.build = self._process.stdout.readline().decode().strip().partition(" ")
        if not self.url:
            self.kill()
            raise OSError(f"llama.cpp's server does not start with {model}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def llama_server(model: Path, *options: str) -> Iterator[LlamaServer]:
    """While it runs. Raises OSError."""
    server = LlamaServer(model, *options)
    try:
        yield server
    finally:
        server.kill()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m engine.bench.llama_server", description=__doc__)
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--context", type=int, default=2048, metavar="N", help="tokens of each slot")
    parser.add_argument("--slots", type=int, default=1, metavar="N", help="completions at once")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--kv", choices=("f16", "f32"), default="f16", help="what the cache holds")
    parser.add_argument("--draft", metavar="MODEL", help="a GGUF file of a smaller model that guesses")
    parser.add_argument("--draft-length", type=int, default=3, metavar="N", help="most guesses a cycle")
    parser.add_argument("--draft-p-min", type=float, default=0.0, metavar="P", help="ends at a guess less likely")
    _serve(parser.parse_args(arguments))


def _serve(options: argparse.Namespace) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = options.model, {Path(options.model).stem}
    params.hostnames, params.port = ["127.0.0.1"], options.port
    params.n_parallel, params.n_ctx = options.slots, options.context * options.slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type[f"GGML_TYPE_{options.kv.upper()}"]
    params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE  # read once, not mapped: a sixth faster
    params.endpoint_metrics = params.endpoint_props = True
    if options.draft is not None:
        speculative = params.speculative
        speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        speculative.draft.mparams.path = options.draft
        speculative.draft.n_max, speculative.draft.n_min = options.draft_length, 1
        speculative.draft.p_min = options.draft_p_min
        speculative.draft.cpuparams.n_threads = speculative.draft.cpuparams_batch.n_threads = options.threads
    server = xllamacpp.Server(params)
    uses = [part.split(" = ")[0].strip() for part in xllamacpp.get_system_info().split("|") if part.endswith("= 1 ")]
    print(server.listening_address, ", ".join(uses).removeprefix("CPU : "), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
