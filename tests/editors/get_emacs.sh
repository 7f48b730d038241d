#!/bin/bash
# Installs Debian's Emacs with eglot, which newer ones bring themselves. Does nothing when both are there.
set -euo pipefail

if ! emacs --batch --funcall package-initialize --load eglot 2>/dev/null; then
  if [ "$(id -u)" != 0 ]; then
    echo "Emacs or eglot is missing; run: sudo apt-get install --no-install-recommends emacs-nox elpa-eglot" >&2
    exit 2
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends \
    emacs-nox elpa-eglot >/dev/null
fi
emacs --version | head -1
