#!/usr/bin/env bash
# A Chromium for the tests that read the report in a real browser: finds one, or installs one, or says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
found() { "$venv/bin/python" -m tests.report.chromium; }

if found >/dev/null 2>&1; then exit 0; fi
echo "browser: no Chromium yet: installing one (once)"
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    { apt-get install -y --no-install-recommends chromium || { apt-get update && apt-get install -y --no-install-recommends chromium; }; } >/dev/null 2>&1 || true
fi
found >/dev/null 2>&1 || "$venv/bin/python" -m playwright install chromium >/dev/null 2>&1 || true
found
