#!/bin/bash
# Unpacks a Neovim for the tests into a folder, with its own C library; the host system is not touched.
#   get_neovim.sh DIR [SUITE]     then DIR/nvim starts it
# SUITE is a Debian suite of the mirror that this host's apt uses: forky (default) has 0.12, trixie 0.10.
# 11 MB to download, 56 MB on disk, about 10 s. Needs apt and patchelf (installed when missing).
set -euo pipefail

dir=$(realpath -m "${1:?usage: get_neovim.sh DIR [SUITE]}")
suite=${2:-forky}
[ -x "$dir/nvim" ] && "$dir/nvim" --version >/dev/null 2>&1 && exec "$dir/nvim" --version

command -v patchelf >/dev/null || { apt-get -qq update && apt-get -qq install -y patchelf >/dev/null; }
mirror=$(apt-get indextargets --format '$(REPO_URI)' | sort -u | grep -m1 '/debian/$')
mkdir -p "$dir"/apt/{lists/partial,archives/partial} "$dir/root"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$dir/apt/sources.list"
apt_options=(
  -o "Dir::Etc::sourcelist=$dir/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache::archives=$dir/apt/archives"
  -o Dir::State::status=/dev/null -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root
)
apt-get "${apt_options[@]}" -qq update

# What the package needs in this suite; with an empty status file nothing counts as installed.
apt-get "${apt_options[@]}" -qq --no-install-recommends --download-only -y install neovim >/dev/null
for package in "$dir"/apt/archives/*.deb; do dpkg -x "$package" "$dir/root"; done
rm -rf "$dir/apt"

library=$dir/root/usr/lib/$(uname -m)-linux-gnu
interpreter=$(find "$dir/root" -name 'ld-linux*' -type f -print -quit)
# patchelf, not `ld.so nvim`: the terminal UI starts /proc/self/exe again with --embed.
patchelf --set-interpreter "$interpreter" --force-rpath --set-rpath "$library" "$dir/root/usr/bin/nvim"
cat >"$dir/nvim" <<SH
#!/bin/sh
export VIMRUNTIME=$dir/root/usr/share/nvim/runtime
exec $dir/root/usr/bin/nvim "\$@"
SH
chmod +x "$dir/nvim"
exec "$dir/nvim" --version
