# make demo     the main job on this machine, narrated; needs Python 3.10 or newer and nothing else
# make test     brings what the tests need, then checks and tests everything
# make check    ruff and mypy
# make mutate   breaks the source in small ways and sees the tests go red
# make bench    ours beside curl, skopeo and docker on the same images (bench/run.py)
# make schema   writes manifests/bundle.schema.json from the code
# make clean    removes everything that the other targets made here

PACKAGES := export_side import_side shared manifests
VENV := .venv
BIN := $(VENV)/bin
OLDEST_VENV := .venv-oldest
# Looked up when used: the newest interpreter for $(VENV), the oldest for $(OLDEST_VENV).
PYTHON = $(shell tests/setup/find-python newest)
OLDEST_PYTHON = $(shell tests/setup/find-python oldest)
PYTEST_WORKERS ?= 2
PYTEST = -n $(PYTEST_WORKERS) --dist loadgroup -q

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-oldest check types mutate bench schema clean

help:
	@sed -n 's/^# make/make/p' Makefile

$(VENV)/bin/pip:
	tests/setup/make-venv "$(PYTHON)" $(VENV)

$(OLDEST_VENV)/bin/pip:
	tests/setup/make-venv "$(OLDEST_PYTHON)" $(OLDEST_VENV)

# The package alone, as a user has it.
$(VENV)/runtime: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install -q --disable-pip-version-check -e .
	touch $@

# The package and what checks and tests need.
$(VENV)/installed: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/runtime

$(OLDEST_VENV)/installed: pyproject.toml | $(OLDEST_VENV)/bin/pip
	$(OLDEST_VENV)/bin/pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

# mypy sees the four folders as transload.*, as they are installed.
.mypy_path/transload:
	mkdir -p $@
	for package in $(PACKAGES); do ln -sfn ../../$$package $@/$$package; done

demo: $(VENV)/runtime
	$(BIN)/python docs/demo/demo.py

check: $(VENV)/installed .mypy_path/transload
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory types

types: $(VENV)/installed .mypy_path/transload
	$(BIN)/mypy $(PACKAGES) tests docs/demo bench

# Quick and whole: the oldest interpreter runs what needs no engine, the newest runs everything, last.
test:
	tests/setup/install-engines
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory test-oldest
	$(BIN)/pytest $(PYTEST)

test-quick: $(VENV)/installed
	$(BIN)/pytest $(PYTEST) -m 'not engine and not slow'

test-oldest: $(OLDEST_VENV)/installed
	$(OLDEST_VENV)/bin/pytest $(PYTEST) -m 'not engine and not slow'

mutate: $(VENV)/installed
	$(BIN)/python tests/mutation/run_mutations.py

bench: $(VENV)/runtime
	$(BIN)/python bench/run.py $(BENCH_OPTIONS)

schema: $(VENV)/runtime
	$(BIN)/python -m transload.manifests.json_schema > manifests/bundle.schema.json.new
	mv manifests/bundle.schema.json.new manifests/bundle.schema.json

clean:
	rm -rf .demo .mypy_path .mypy_cache .ruff_cache .pytest_cache .hypothesis .test-cache build dist *.egg-info
	rm -rf $(VENV) $(OLDEST_VENV)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
