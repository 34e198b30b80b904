# `make run`: set up, then run the suite against the default engine. `make test`: set up, then test the suite itself.
VENV ?= .venv
BIN := $(VENV)/bin
export VENV

.PHONY: run test fast coverage nightly docs setup clean

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

# Which lines of the suite its own tests run, in all their processes: slower than `make test`. TESTS narrows it.
coverage: setup
	mkdir -p .ropecheck/coverage
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -n 2 --dist loadgroup $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --sort=cover
	$(BIN)/coverage html --quiet --directory .ropecheck/coverage/html

# What takes hours; PARTS="mended fuzz" runs some of it, and .ci/nightly says what there is.
nightly:
	.ci/nightly $(PARTS)

docs: setup
	$(BIN)/ropecheck docs build

setup:
	@requirements/setup.sh

clean:
	rm -rf $(VENV) .ropecheck
