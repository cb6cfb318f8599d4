# Everything a developer types. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LEAN := $(VENV)/.lean

.DEFAULT_GOAL := help
.PHONY: help install demo test test-array-api test-oldest check bench bench-long pages docs cli-docs coverage mutation clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(STAMP) ## Set up .venv with the package (editable), all extras and developer tools

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[all]" --group dev
	@touch $(STAMP)

# Without documentation and test tools; `make install` adds the rest on top.
$(LEAN): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[plots]" typer rich pandas
	@touch $(LEAN)

demo: $(if $(wildcard $(STAMP)),install,$(LEAN)) ## Choose genes for cell types nobody has labeled; writes report.html and demo.png
	$(BIN)/semfs demo

# One thread per process: the tests run in as many processes as there are processors.
test: install ## Run the tests (the slow, browser and network ones excepted)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not browser and not network" -n auto --dist worksteal

# Only torch's build for processors (+cpu): others bring gigabytes of CUDA packages along. Where
# the package index has no such build, its tests are skipped.
test-array-api: install ## Run the tests of arrays of other libraries, with SciPy's support switched on
	timeout 300 $(BIN)/python -m pip install --quiet "torch==2.13.0+cpu" \
		|| echo "No torch==2.13.0+cpu in the package index: the tests of torch are skipped."
	SCIPY_ARRAY_API=1 $(BIN)/python -m pytest tests/rows/test_array_api.py \
		tests/selectors/test_sklearn_contract.py -rs

test-oldest: ## Run the core tests on the oldest supported dependencies, in .venv-oldest
	@test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --editable . --constraint tools/oldest.txt \
		pytest hypothesis pandas polars pyarrow
	.venv-oldest/bin/python -m pytest tests/method tests/evaluation tests/baselines \
		tests/selectors/test_estimator.py tests/selectors/test_sklearn_contract.py \
		tests/selectors/test_bad_input.py

check: install ## Format, lint, type-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: install ## Measure speed and memory, with peers: core, an atlas of 10^6 cells, Dask (hours)
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python benchmarks/bench_core.py --runs 3
	$(BIN)/python benchmarks/bench_atlas.py --runs 3
	$(BIN)/python benchmarks/bench_annotate.py --runs 3
	$(BIN)/python benchmarks/bench_distributed.py
	$(BIN)/python benchmarks/bench_demo.py
	$(BIN)/python benchmarks/bench_baselines.py --show

bench-long: bench ## The same, and then all baselines at full size
	$(BIN)/python benchmarks/bench_baselines.py

pages: install ## Write the tables and pictures of the pages from benchmarks/results
	$(BIN)/python docs/benchmark_tables.py
	$(BIN)/python docs/reproduced.py
	$(BIN)/python docs/demo_picture.py

docs: install ## Build the documentation into docs/_build/html; warnings and broken links fail
	$(BIN)/python docs/cli_reference.py --check
	rm -rf docs/generated
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

cli-docs: install ## Write docs/cli.md from the commands
	$(BIN)/python docs/cli_reference.py

coverage: install ## Run the tests and show which lines they miss
	$(BIN)/python -m pytest -m "not browser and not network" -n auto --cov --cov-report= \
		--cov-fail-under=0
	SCIPY_ARRAY_API=1 $(BIN)/python -m pytest tests/rows/test_array_api.py --cov --cov-append \
		--cov-report=term

mutation: install ## Change the files of method/ in small ways; count what the tests notice
	$(BIN)/python tools/mutation.py

clean: ## Remove what the other targets made
	rm -rf $(VENV) .venv-oldest build dist docs/_build docs/generated docs/gallery report.html demo.png .pytest_cache .mypy_cache .ruff_cache .hypothesis
