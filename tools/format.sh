#!/usr/bin/env bash
# format.sh [--fix]: checks that all C++ files are as clang-format 14 writes them, or rewrites them.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(--dry-run -Werror)
[ "${1:-}" != --fix ] || mode=(-i)
find src cli tests bench python cmake -name '*.cc' -o -name '*.h' | sort | xargs -r clang-format-14 "${mode[@]}"
