#!/usr/bin/env bash
# setup-venv.sh NAME: makes the virtual environment .venv/NAME from tools/requirements-NAME.txt and prints the path of its
# Python. Does nothing the second time: a stamp in the environment holds the hash of the requirements. Where
# LAMINA_<NAME>_PYTHON names an interpreter, that one is used as it is: this script installs nothing there, and build_wheel.sh
# nothing but Lamina's own wheel.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:?usage: tools/setup-venv.sh NAME}
requirements=tools/requirements-$name.txt
[ -f "$requirements" ] || { echo "setup-venv: no such file: $requirements" >&2; exit 2; }

override=LAMINA_${name^^}_PYTHON
if [ -n "${!override:-}" ]; then
  "${!override}" -c '' || { echo "setup-venv: $override=${!override} does not run" >&2; exit 1; }
  echo "${!override}"
  exit 0
fi

venv=$PWD/.venv/$name
stamp=$venv/requirements.sha256
want=$(sha256sum <"$requirements")
if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
  echo "$venv/bin/python"
  exit 0
fi

base=${PYTHON:-python3}
"$base" -c 'import sys; sys.exit(sys.version_info < (3, 9))' ||
  { echo "setup-venv: $base is older than Python 3.9" >&2; exit 1; }
echo "setup-venv: installing $requirements into .venv/$name" >&2
rm -rf "$venv"
"$base" -m venv "$venv" >&2

install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" "$@" >&2; }

# PyPI's torch for x86-64 brings gigabytes of CUDA: only the CPU build will do, from where pip already looks, or else
# from the index that PyTorch keeps for it.
torch=$(sed -n 's/^torch==//p' "$requirements")
if [ -n "$torch" ] && [ "$(uname -m)" = x86_64 ]; then
  constraint=$(mktemp)
  trap 'rm -f "$constraint"' EXIT
  echo "torch==$torch+cpu" >"$constraint"
  install -c "$constraint" 2>/dev/null ||
    install -c "$constraint" --extra-index-url "${LAMINA_TORCH_INDEX:-https://download.pytorch.org/whl/cpu}"
else
  install
fi
alone=$(sed -n 's/^#alone: //p' "$requirements")
[ -z "$alone" ] || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps $alone >&2
echo "$want" >"$stamp"
echo "$venv/bin/python"
