# `make demo` and `make test` set up everything they need in .venv; PYTHON is what makes that environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: demo test lint types check clean

demo: $(STAMP)
	$(BIN)/felix-mlir tune examples/models/mobilenet_block.py:build --target cpu --budget 100s --out build/demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/lit -sv tests/ir

lint: $(STAMP)
	$(BIN)/ruff format --check felix_mlir tests tools examples
	$(BIN)/ruff check felix_mlir tests tools examples

types: $(STAMP)
	$(BIN)/pyright --pythonpath $(BIN)/python

check: lint types test

$(STAMP): pyproject.toml CMakeLists.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist
