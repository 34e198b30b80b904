#!/usr/bin/env bash
# Makes the virtual environment that everything here runs in, and says what it is doing. Does nothing when it is
# already right: the stamp holds a hash of these files and of the Python that made the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "setup: needs CPython 3.11 or newer as '$python' (found: $("$python" --version 2>&1 || echo none)); set PYTHON=..." >&2
    exit 2
fi
want=$( { "$python" -c 'import sys; print(sys.version)'; cat requirements/*.txt requirements/setup.sh pyproject.toml; } | sha256sum | cut -c1-16)
stamp=$venv/.ropecheck-ready
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && [ -x "$venv/bin/ropecheck" ]; then
    exit 0
fi

say() { echo "setup: $*"; }
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

say "environment in $venv (once; about 3 minutes and 6 GB)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
rm -f "$stamp"
say "1/4 torch and torchvision"
pip install -r requirements/torch.txt
say "2/4 what the engine's position code imports"
pip install -r requirements/engine.txt
say "3/4 the engine: $(grep -o '^sglang==.*' requirements/no-deps.txt), without its other dependencies"
pip install --no-deps -r requirements/no-deps.txt
say "4/4 the suite and its tools"
pip install -r requirements/suite.txt
pip install --no-deps --editable .
echo "$want" > "$stamp"
say "done"
