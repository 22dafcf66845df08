PYTHON ?=
BIN := .venv/bin

# Any Python that can run scripts/install.py, which looks for the right version itself.
STARTER = $(shell for name in python3 python3.11 python3.12 python3.13 python3.14 $(PYTHON); do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && echo $$name && break; done)

.DEFAULT_GOAL := help
.PHONY: help install run test check format bench bench-pipeline faults audit sbom openapi clean-local

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: ## Put everything into .venv (PYTHON=python3.13 takes another Python)
	@$(or $(STARTER),$(error No Python that runs is on the PATH: install 3.11 or newer, or name it: make install PYTHON=/path/to/python3)) scripts/install.py $(PYTHON)

run: install ## Start a broker, a database and the service on this machine (CLUSTERS=2: two)
	@$(BIN)/kafka-quota-service dev $(if $(CLUSTERS),--clusters $(CLUSTERS))

test: install ## Run every check and every test
	@$(BIN)/python scripts/checks.py all

check: install ## Run the static checks: format, lint, types, imports, OpenAPI, words
	@$(BIN)/python scripts/checks.py static

format: install ## Format the code and fix what can be fixed
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: install ## Run the benchmarks against a real broker
	@$(BIN)/python -m benchmarks

bench-pipeline: install ## Run the benchmark of the Spark pipeline (about fifteen minutes)
	@$(BIN)/python -m benchmarks.pipeline

faults: install ## Kill, pause and cut off everything, at length (STEPS="quorum": that alone)
	@$(BIN)/python scripts/faults.py $(STEPS)

audit: install ## Compare the locked packages with the published advisories
	@$(BIN)/python scripts/audit.py

sbom: install ## Write dist/sbom.cdx.json: what the service is made of (CycloneDX)
	@$(BIN)/python scripts/sbom.py

openapi: install ## Write openapi/openapi.json anew
	@$(BIN)/kafka-quota-service openapi

clean-local: install ## Forget the data of `make run`
	@$(BIN)/python -m app.localdev.local_directory
