#!/usr/bin/env bash
# build_wheel.sh: builds the wheel in build/release, so that what is compiled there is not compiled again, puts it into
# build/wheel and installs it, in place of the one that is there, into the environment of LAMINA_TORCH_PYTHON, else .venv/torch.
# Without network, once that environment is there.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(tools/setup-venv.sh torch)
rm -rf build/wheel
export LAMINA_BUILD_TESTS=ON
"$python" -m pip wheel . --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -w build/wheel \
  -C build-dir=build/release
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall build/wheel/*.whl
