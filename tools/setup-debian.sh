#!/usr/bin/env bash
# setup-debian.sh GROUP…: installs from Debian 12 what is missing for the groups build, demo, test and check. Asks
# for nothing, uses sudo only when not root, and does nothing (no network, no root) when all is there.
set -euo pipefail

packages() {
  case $1 in
    build) echo g++ cmake ninja-build make pkg-config libfmt-dev nlohmann-json3-dev libcli11-dev libutf8proc-dev \
      libxxhash-dev libdeflate-dev ;;
    demo) echo bible-kjv ;;
    test) echo libgtest-dev python3 python3-venv python3-dev ccache util-linux ;;
    check) echo clang-format-14 clang-tidy-14 binutils python3 ;;
    *) echo "setup-debian: unknown group: $1" >&2; return 2 ;;
  esac
}

wanted=()
for group in "${@:?usage: tools/setup-debian.sh GROUP…}"; do
  names=$(packages "$group")
  read -ra names <<<"$names"
  wanted+=("${names[@]}")
done

if ! command -v dpkg-query >/dev/null; then
  echo "setup-debian: this is no Debian system; needed are what Debian calls: ${wanted[*]}" >&2
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "setup-debian: installing ${missing[*]}" >&2
root=()
[ "$(id -u)" = 0 ] || root=(sudo)
install() {
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -q --no-install-recommends "${missing[@]}" >&2
}
# The lists may be absent or old: fetch them only if the first try fails.
install || { "${root[@]}" apt-get update -q >&2 && install; }
