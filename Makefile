# `make` lists the targets. Everything a target needs, it sets up first.
#
#   PYTHON   the interpreter that .venv is made with, 3.11 or newer: make setup PYTHON=python3.12
#   ARGS     further words for demo, serve and test: make test ARGS='-k embedded'
#   FOLDER   what the demo indexes: make demo FOLDER=~/notes
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo 'jobwire needs Python 3.11 or newer; name one: make PYTHON=python3.12' >&2; exit 1; }

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml client/pyproject.toml constraints.txt
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e ./client -e '.[serve,dev]'
	@touch $@

.PHONY: setup
setup: $(READY) ## install everything into .venv

.PHONY: demo
demo: $(READY) ## index a folder of text with a server, two workers and a kill -9
	@$(BIN)/python -m jobwire_server.demo $(if $(FOLDER),"$(FOLDER)") $(ARGS)

.PHONY: serve
serve: $(READY) ## run a server on the embedded engine
	@$(BIN)/jobwire serve $(ARGS)

.PHONY: test
test: $(READY) ## run every test
	$(BIN)/pytest -n auto $(ARGS)

.PHONY: range
range: $(READY) ## install client and store alone, at both ends of what they allow, and try them
	$(BIN)/pytest -m range tests/range $(ARGS)

.PHONY: lint
lint: $(READY) ## check style: Python and the contract
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/buf lint proto

.PHONY: types
types: $(READY) ## check types, strictly
	$(BIN)/mypy

.PHONY: layers
layers: $(READY) ## check that each layer imports only those below it
	$(BIN)/lint-imports

.PHONY: proto
proto: ## generate the Python messages and stubs from proto/
	@$(CHECK_PYTHON)
	PYTHON=$(PYTHON) sh tools/generate.sh

.PHONY: verify-proto
verify-proto: ## check that the committed messages and stubs are what proto/ says
	@$(CHECK_PYTHON)
	@set -e; out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; PYTHON=$(PYTHON) sh tools/generate.sh "$$out"; \
	  diff -r -x __init__.py -x __pycache__ "$$out/jobwire/v1" client/src/jobwire/v1 \
	  || { echo 'the generated code differs from proto/; run: make proto' >&2; exit 1; }

.PHONY: breaking
breaking: $(READY) ## check that the contract still serves callers of the last release
	$(BIN)/buf breaking proto --against proto/image.binpb

# Only at a release: the image is what callers have, so refreshing it earlier would hide a break from them.
.PHONY: image
image: $(READY) ## at a release: make the contract of now the one that `breaking` compares with
	$(BIN)/buf build proto --exclude-source-info -o proto/image.binpb

.PHONY: clean
clean: ## remove everything that was made here, the environments included
	rm -rf $(VENV) .venv-gen .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -prune -exec rm -rf {} +
