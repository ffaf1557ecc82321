# On a bare machine with Python 3.11 or newer, `make demo` and `make test` need no other step.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# small tensors: more threads than one fight over the cores of a busy machine
export OMP_NUM_THREADS ?= 1

.PHONY: demo test check bench peers nightly docs clean

demo: $(STAMP)
	env -u OMP_NUM_THREADS $(BIN)/rood audit --out audit

test: check
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered --cov-fail-under=90 -m "not slow"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# pytorch-ood, torchattacks and foolbox in an environment of their own; ROOD_DATA=folder adds two
# sets of images, and the network and images that are attacked. timm and torchvision beside ours
PEERS := .venv-peers
peers: $(PEERS)/.installed $(PEERS)/vision
	$(PEERS)/bin/python -m benchmarks.peers
	PYTHONPATH=$(PEERS)/vision $(BIN)/python -m pytest --no-cov tests/test_real_libraries.py
	$(PEERS)/bin/python -m benchmarks.peers.attacks

$(PEERS)/.installed: pyproject.toml constraints.txt benchmarks/peers/requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[demo]"
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/peers/requirements.txt
	touch $@

$(PEERS)/vision: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ torchvision==0.28.0 timm==1.0.30

nightly: $(STAMP)
	$(BIN)/python -m pytest
	$(BIN)/rood reproduce --all --size tiny --out reproduction

docs: $(STAMP)
	$(BIN)/python -m tools.generate

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) audit
