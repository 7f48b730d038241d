# Everything a person or CI runs. Each target sets up what it needs; nothing outside .venv is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-editors test-editors-core test-remote bench gpu measure lint wheel clean

demo: $(VENV)/.installed ## the main job on the embedded pair, for a newcomer
	$(BIN)/specter demo

test: lint ## everything CI needs
	OMP_NUM_THREADS=1 $(BIN)/pytest

test-editors: $(VENV)/.installed ## real Neovim and VS Code, installed into .cache, and Debian's Emacs; side by side
	OMP_NUM_THREADS=1 $(BIN)/pytest -m editors --numprocesses 2 --dist worksteal tests/editors

test-editors-core: $(VENV)/.installed ## the main job in Neovim and VS Code, in 3 minutes
	OMP_NUM_THREADS=1 $(BIN)/pytest -m core --numprocesses 2 --dist worksteal tests/editors

test-remote: $(VENV)/.installed ## a real vLLM on the CPU (3.4 GB, into .cache)
	sh tests/remote/get_vllm.sh .cache/vllm
	$(BIN)/pytest -m remote tests/remote

bench: $(VENV)/.installed ## plain against speculative decoding, side by side
	$(BIN)/specter bench

gpu: ## correctness and times on a GPU; torch and transformers are all it needs
	PYTHON=$${PYTHON:-$$(test -x $(BIN)/python && echo $(BIN)/python || echo python3)} tests/gpu/run.sh

measure: $(VENV)/.installed ## the server's times in a typing session; on an idle machine
	$(BIN)/python -m tests.e2e.measure

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheel: $(VENV)/.installed ## builds the wheel and checks its size (at most 60 MB)
	rm -rf build dist
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	@size=$$(stat -c %s dist/*.whl); echo "wheel: $$size bytes"; test $$size -le 60000000

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Specter needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
