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
want=$( { "$python" -c 'import sys; print(sys.version)'; cat requirements/*.txt requirements/lock/*.txt requirements/setup.sh pyproject.toml; } | sha256sum | cut -c1-16)
stamp=$venv/.ropecheck-ready
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && [ -x "$venv/bin/ropecheck" ]; then
    exit 0
fi

say() { echo "setup: $*"; }
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

say "environment in $venv (once; about 3 minutes and 6 GB)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
rm -f "$stamp"
say "1/2 torch, $(grep -o '^sglang==.*' requirements/no-deps.txt) with what its position code imports, and the suite's tools"
# All that there is to install is in the locks: pip looks for nothing else, and takes no file of another hash.
pip install --require-hashes --no-deps -r requirements/lock/all.txt -r requirements/lock/no-deps.txt
say "2/2 the suite"
pip install --no-deps --no-build-isolation --editable .
echo "$want" > "$stamp"
say "done"
