#!/usr/bin/env bash
# Writes requirements/lock/*.txt anew: every package, the transitive ones too, with the hashes of all its files, for
# every Python from 3.11 on. To be run after a change of requirements/*.txt or of pyproject.toml's dependencies; what is
# locked stays at its version unless the change asks for another. Needs uv (`pip install uv`).
set -euo pipefail
cd "$(dirname "$0")"
lock() {
    local out=lock/$1
    shift
    "${UV:-uv}" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        --output-file "$out" "$@"
}
lock all.txt torch.txt engine.txt suite.txt
lock suite.txt suite.txt ../pyproject.toml --constraint lock/all.txt
lock no-deps.txt --no-deps no-deps.txt
