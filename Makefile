# make demo: optimize a real problem on this CPU. make test: the tests. make check: style, types, house rules.
# Each sets up .venv first, and again only when pyproject.toml or constraints.txt change.

PYTHON ?= python3
JOBS ?= 2
SECONDS_FOR_DEMO ?= 60
DEMO ?= problems/softmax.py

BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test check format venv clean
.DEFAULT_GOAL := demo

demo: venv
	$(BIN)/modelblaster optimize $(DEMO) --seconds $(SECONDS_FOR_DEMO)

test: venv
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not gpu"

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m checks

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

venv: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt tools/setup
	bash tools/setup $(PYTHON) .venv
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
