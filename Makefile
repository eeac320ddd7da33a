# Everything runs in an environment of its own, made on first use: `make help` lists the commands.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# Modules are compiled once, even where the surroundings ask for no bytecode: a process starts in half
# the time, and pytest rewrites each assertion once.
export PYTHONDONTWRITEBYTECODE =
# One thread a process: the tests run side by side, and sums do not depend on the machine.
TEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help install demo test quick nightly lint format goldens house examples docs wheel-check release-check clean

help: ## list these commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

demo: install ## test a classifier and certify a network, check both, write their pages
	mkdir -p runs/demo
	$(BIN)/python examples/gate/predict.py runs/demo/answers.csv
	$(BIN)/nonvacuous evaluate runs/demo/answers.csv --group site --unseen --out runs/demo/test --force
	$(BIN)/nonvacuous verify runs/demo/test
	$(BIN)/nonvacuous certify --data digits --recipe images --attempts 10 --out runs/demo/network --force
	$(BIN)/nonvacuous verify runs/demo/network
	@echo "The pages: $(CURDIR)/runs/demo/test/report.html and $(CURDIR)/runs/demo/network/report.html"

# One more than cores: tests that start clusters, browsers and runs to kill mostly wait.
test: WORKERS = 3
test: install ## run the tests, the slow ones too (ARGS="-k word" selects)
	scripts/install-chromium.sh
	$(TEST) $(ARGS)

quick: install ## run the tests that are not marked slow and open no browser
	$(TEST) -m "not slow and not browser" $(ARGS)

nightly: install ## run the long forms of what `make test` runs, and properties on many examples
	$(TEST) --nightly -m "nightly or hypothesis" $(ARGS)

lint: install ## check style, types and the walls between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## put the code into the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

goldens: install ## write again what the promise commands now say otherwise, for the tests to compare with
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.golden.test_commands

house: install ## draw the rooms and the table of theorems into docs/, from the code
	$(BIN)/python scripts/house.py
	$(BIN)/python scripts/bounds-page.py

examples: install ## run the examples of the pages and write their outputs again
	OMP_NUM_THREADS=1 $(BIN)/python scripts/examples.py docs/index.md docs/validity.md docs/questions/*.md

docs: install ## build the site into build/site; warnings and broken links are errors
	rm -rf build/site
	OMP_NUM_THREADS=1 $(BIN)/python scripts/gallery.py build/gallery/reports
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --fail-on-warning --keep-going -q -d build/doctrees docs build/site
	$(BIN)/python scripts/check-site.py build/site
	$(BIN)/python scripts/check-access.py build/site
	@echo "The site: $(CURDIR)/build/site/index.html"

wheel-check: install ## build the wheel and try it in a clean environment
	scripts/check-wheel.sh $(BIN)/python

release-check: install ## build wheel and sdist, check metadata, README, version and changelog
	$(BIN)/python scripts/check-release.py

clean: ## remove the environment, builds and caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

install: $(STAMP) ## make the environment

# The environment is remade only when one of these files changes. torch comes first and alone.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than Python 3.11: run make PYTHON=/path/to/a/newer/python"; exit 1; }
	@echo "Installing into $(VENV); the first time takes a few minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(shell grep '^torch==' constraints.txt)
	$(PIP) hatchling
	$(PIP) --no-build-isolation -e '.[dev,data,docs,tensorboard,ray,sql,integrations]'
	@touch $@
