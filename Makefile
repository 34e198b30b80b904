# `make run`: set up, then run the suite against the default engine. `make test`: set up, then test the suite itself.
VENV ?= .venv
BIN := $(VENV)/bin
export VENV

.PHONY: run test fast docs setup clean

run: setup
	$(BIN)/ropecheck run

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@requirements/browser.sh
	$(BIN)/pytest -n 2 --dist loadgroup  # a group shares what is slow to start

# The loop while you write: nothing of it starts an engine.
fast: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest -x tests/core/test_spec.py tests/conformance/test_explain.py tests/families/test_spec.py tests/book/test_formulas.py

docs: setup
	$(BIN)/ropecheck docs build

setup:
	@requirements/setup.sh

clean:
	rm -rf $(VENV) .ropecheck
