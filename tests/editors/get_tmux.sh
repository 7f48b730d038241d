#!/bin/bash
# Installs Debian's tmux. Does nothing when one is there.
set -euo pipefail

if ! command -v tmux >/dev/null; then
  if [ "$(id -u)" != 0 ]; then
    echo "tmux is missing; run: sudo apt-get install --no-install-recommends tmux" >&2
    exit 2
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends tmux >/dev/null
fi
tmux -V
