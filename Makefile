PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := export_side import_side shared manifests

.PHONY: check types clean

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e '.[dev]'
	touch $@

.mypy_path/transload:
	mkdir -p $@
	for package in $(PACKAGES); do ln -sfn ../../$$package $@/$$package; done

check: $(VENV)/installed .mypy_path/transload
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory types

types: $(VENV)/installed .mypy_path/transload
	$(BIN)/mypy $(PACKAGES) tests
