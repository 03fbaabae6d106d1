# `make` lists the targets. Everything bootstraps itself from a plain python3 (3.11 or newer):
# a virtual environment in .venv, filled from the hashed locks in requirements/.

# Set in some environments; it would make every start compile every module again.
unexport PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME VIRTUAL_ENV

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
export PYTHON
ARGS ?=
# One more than cores: some tests wait for a grace period, a disk or another process.
WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help run install test e2e cluster-test test-local check check-format check-lint check-types check-layers check-shape check-names bench screens format lock model-data provider-index clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  ARGS="..." is passed on, e.g. make run ARGS="chat -q hello", make test ARGS="-k store -x"'

# Without arguments and without a terminal there is no user to answer: the demo runs instead.
run: $(VENV)/.run $(VENV)/.local ## run the product
	@set -- $(ARGS); if [ $$# -eq 0 ] && ! [ -t 0 ]; then set -- demo; fi; exec $(BIN)/hermes "$$@"

install: $(VENV)/.build ## install the program for this user, with uv or pipx
	@sh scripts/install_program.sh $(VENV)

test: $(VENV)/.dev ## run the tests
	@sh scripts/system.sh
	$(BIN)/python -m pytest -n $(WORKERS) -m "not heavy" $(ARGS)

e2e: $(VENV)/.dev ## run the heavy tests: kills, fuzzing, a browser, toolchains, Docker, replays
	@HERMES_TEST_COMPLETE=1 sh scripts/system.sh
	HERMES_TEST_REPLAY=1 $(BIN)/python -m pytest -n $(WORKERS) -m heavy $(ARGS)

cluster-test: $(VENV)/.dev ## nodes on PostgreSQL for an hour: the tests of the API, kills, pauses, crashes; their speed
	@sh scripts/cluster_test.sh $(BIN) $(WORKERS) $(ARGS)

test-local: $(VENV)/.dev ## the tests with real local models; downloads 1.6 GB once
	$(BIN)/hermes model pull
	$(BIN)/hermes model pull qwen2.5-coder-1.5b
	HERMES_TEST_MEASURE=1 $(BIN)/python -m pytest -m local tests/local $(ARGS)

# Separate targets, so that `make -k check` reports everything that is wrong.
check: check-format check-lint check-types check-layers check-shape check-names ## format, lint, types, layers, shape, names
check-format: $(VENV)/.dev
	$(BIN)/ruff format --check .
check-lint: $(VENV)/.dev
	$(BIN)/ruff check .
check-types: $(VENV)/.dev
	$(BIN)/mypy
check-layers: $(VENV)/.dev
	$(BIN)/lint-imports
check-shape: $(VENV)/.dev
	$(BIN)/python scripts/shape_check.py
check-names: $(VENV)/.dev
	$(BIN)/python scripts/check_names.py

format: $(VENV)/.dev ## format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

screens: $(VENV)/.dev ## pictures of the dashboard and of the terminal, in .screens/
	$(BIN)/python -m tests.e2e.dashboard.screens
	$(BIN)/python -m tests.e2e.terminal_screens $(ARGS)

bench: $(VENV)/.dev ## compare with the original and with the floor (see docs/benchmarks.md)
	$(BIN)/python -m bench $(ARGS)

COMPILE = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --custom-compile-command "make lock"

lock: $(VENV)/.build ## renew the hashed locks
	$(COMPILE) pyproject.toml --output-file requirements/run.txt
	$(COMPILE) pyproject.toml --extra local -c requirements/run.txt --output-file requirements/local.txt
	$(COMPILE) pyproject.toml --all-extras --group dev --output-file requirements/dev.txt
	$(COMPILE) --group build --output-file requirements/build.txt

model-data: $(VENV)/.dev ## renew what is known of models: limits and prices
	$(BIN)/python scripts/model_data.py $(ARGS)

provider-index: $(VENV)/.dev ## renew the index of providers and wires after changing one
	$(BIN)/python scripts/provider_index.py

clean: ## remove the environment and every generated file
	rm -rf $(VENV) .bench .screens .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.build: requirements/build.txt scripts/bootstrap.sh scripts/steps.sh
	@sh scripts/bootstrap.sh $(VENV)
	@touch $@

$(VENV)/.run: requirements/run.txt pyproject.toml scripts/install.sh $(VENV)/.build
	@sh scripts/install.sh $(VENV) requirements/run.txt
	@touch $@

# The embedded model's engine. Where there is no wheel for it, everything else still runs.
$(VENV)/.local: requirements/local.txt $(VENV)/.run
	@sh scripts/local.sh $(VENV) requirements/local.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml scripts/install.sh $(VENV)/.build
	@sh scripts/install.sh $(VENV) requirements/dev.txt
	@touch $@ $(VENV)/.run
