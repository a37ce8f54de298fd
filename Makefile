# make quickstart: the whole method in minutes, no data, no GPU.   make test: everything that is checked.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: quickstart test clean

quickstart: $(VENV)/installed
	$(BIN)/kcciol quickstart

test: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

# pip, not another installer: it takes an already downloaded build of torch when it is told of one.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("kcciol needs Python 3.11 or later, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,plots,download,tensorboard,ray,photos,onnx]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
