# The virtual environment .venv is made on demand and made anew when pyproject.toml changes.
# Each stamp says what is installed in it.

PYTHON ?= python3
JOBS ?= 2
FUZZ_MINUTES ?= 10

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test lint format generated fuzz exp2 clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Variables: PYTHON=$(PYTHON) JOBS=$(JOBS) FUZZ_MINUTES=$(FUZZ_MINUTES)"

run: $(VENV)/core.stamp ## Generate, compile, check and time attention kernels on real activations.
	$(BIN)/flashgen demo tests/data/minilm.npz

test: $(VENV)/test.stamp ## Run all tests, JOBS at a time.
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

lint: $(VENV)/dev.stamp ## Check style and types; changes nothing.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright

format: $(VENV)/dev.stamp ## Format, and fix what ruff can fix.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

generated: $(VENV)/test.stamp ## Emit generated/ again.
	$(BIN)/python tests/make_generated.py

fuzz: $(VENV)/test.stamp ## Run the property tests on new random cases for FUZZ_MINUTES.
	$(BIN)/python tests/fuzz.py --minutes $(FUZZ_MINUTES) --jobs $(JOBS)

exp2: $(VENV)/test.stamp ## Check exp2 of the vector layers on every float32.
	$(BIN)/python tests/check_exp2.py --jobs $(JOBS)

clean: ## Remove .venv, builds and caches of tools; compiled kernels in the user's cache stay.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .lit_test_times.txt
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/core.stamp: pyproject.toml
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) -e .
	@touch $@

$(VENV)/test.stamp: $(VENV)/core.stamp
	@echo "Installing what the tests need"
	@$(PIP) -e '.[test]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/core.stamp
	@echo "Installing what development needs"
	@$(PIP) -e '.[dev]'
	@touch $@
