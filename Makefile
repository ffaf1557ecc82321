# On a bare machine with Python 3.11 or newer, `make demo` and `make test` need no other step.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo
DEV := $(VENV)/.dev
# says so before pip does, in riddles, and leaves a broken environment
RECENT := import sys; sys.exit(None if sys.version_info >= (3, 11) else "expected Python 3.11 or newer, got %d.%d: remove $(VENV) if it is there, then make $(MAKECMDGOALS) PYTHON=python3.12" % sys.version_info[:2])
ENVIRONMENT = if test -x $(BIN)/python; then $(BIN)/python -c '$(RECENT)'; else $(PYTHON) -c '$(RECENT)' && $(PYTHON) -m venv $(VENV); fi
INSTALL := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# small tensors: more threads than one fight over the cores of a busy machine
export OMP_NUM_THREADS ?= 1
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal --durations=10
COVERED := --cov --cov-report=term:skip-covered --cov-fail-under=95

.PHONY: demo test test-all check bench peers nightly campaign generate leaderboard docs dist clean

demo: $(DEMO)
	env -u OMP_NUM_THREADS -u PYTHONDONTWRITEBYTECODE $(BIN)/rood audit --out audit
	@echo "the page: $(CURDIR)/audit/report.html"
	@echo "the command: $(BIN)/rood, such as $(BIN)/rood audit --help"

# what a person runs before a commit: minutes, so without coverage, which costs 40 % more
test: check
	$(PYTEST) --no-cov -m "not slow"

# with the long end-to-end tests and coverage: what .ci/run runs
test-all: check
	$(PYTEST) $(COVERED)

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEV)
	$(BIN)/python -m benchmarks

# pytorch-ood, torchattacks and foolbox in an environment of their own; ROOD_DATA=folder adds two
# sets of images, and the network and images that are attacked. timm and torchvision beside ours
PEERS := .venv-peers
peers: $(PEERS)/.installed $(PEERS)/vision
	$(PEERS)/bin/python -m benchmarks.peers
	PYTHONPATH=$(PEERS)/vision $(BIN)/python -m pytest --no-cov tests/models/test_real_libraries.py tests/docs/test_code_blocks.py -k "real_libraries or timm"
	$(PEERS)/bin/python -m benchmarks.peers.attacks

$(PEERS)/.installed: pyproject.toml constraints.txt benchmarks/peers/requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python $(INSTALL) --editable ".[demo]" --editable zoo
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/peers/requirements.txt
	touch $@

$(PEERS)/vision: $(DEV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ torchvision==0.28.0 timm==1.0.30

nightly: test-all
	$(BIN)/rood reproduce --all --size tiny --out reproduction

# mutated files, kills, flipped bits and faults in a sandbox: under an hour; writes the rows of docs/evidence/reliability.md
campaign: $(DEV)
	PYTHONPATH=tests:tests/helpers $(BIN)/python -m campaign --rows docs/results/reliability.jsonl

# stubs for editors, the reference and the pages whose numbers are rows
generate: $(DEV)
	$(BIN)/python -m tools.generate

# the leaderboard, in build/leaderboard, from the receipts in leaderboard/entries
leaderboard: $(DEV)
	$(BIN)/python -m tools.leaderboard

# the site, in build/site: every tutorial is run, every warning is an error
docs: generate
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs build/site
	@echo "site: build/site/index.html"

# sdists and wheels of the three distributions; two builds of one commit give the same bytes
dist: $(DEV)
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m tools.dist

# what the demo needs and no more; Python compiles what it imports, which is a fifth of torch
$(DEMO): pyproject.toml constraints.txt
	@$(ENVIRONMENT)
	$(BIN)/python $(INSTALL) --no-compile --editable ".[demo]"
	touch $@

$(DEV): pyproject.toml papers/pyproject.toml zoo/pyproject.toml constraints.txt
	@$(ENVIRONMENT)
	$(BIN)/python $(INSTALL) --editable ".[dev]" --editable papers --editable zoo
	touch $(DEMO) $@

clean:
	rm -rf $(VENV) $(PEERS) audit build dist
