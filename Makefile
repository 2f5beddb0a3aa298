# Every target makes .venv and installs what is missing; the second time that is quick.
#   make demo        start a coordinator and four agents on this machine, train and score    ARGS="--rounds 2"
#   make test        run the quick tests, 5 minutes on two cores; ends with the slowest ones    ARGS="-k archive" JOBS=0
#   make smoke       one look at Postgres, and at a federation of processes
#   make check       check style, types, layers, sizes, and that the stubs match the .proto
#   make nightly     run the jobs of the night, each of at most 20 minutes: tests/nightly.py lists them    ARGS="soak methods"
#   make planted     plant faults in copies of the product; a test must notice each    ARGS="--to expected"
#   make chaos       kill and freeze processes and cut connections during runs    ARGS="--seeds 5"
#   make faults      time nine faults on real processes: when the run goes on, and what its user reads    ARGS="--lease 2"
#   make containers  cut, kill and restart the compose federation; needs a Docker engine
#   make release     changelog, version, wheel and record of a release, in two commits    VERSION=0.2.0 ARGS=--dry-run
#   make wheel       build the wheel, install it in an environment of its own, and play a demonstration from it
#   make bench       measure speed against its limits    ARGS="--quick"

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
JOBS ?= 2
ROOTS := shared server client_agent protos

.DEFAULT_GOAL := help
.PHONY: help demo test smoke nightly planted check chaos faults containers release wheel bench protos clean

help:
	@sed -n 's/^#   //p' Makefile

demo: .venv/.ready
	@echo "==> A federation on this machine: one coordinator, four agents, real digits of four styles"
	@$(BIN)/tideline demo $(ARGS)

test: .venv/.ready
	@echo "==> The test suite"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --durations=10 $(ARGS)

smoke: .venv/.ready
	@echo "==> One look at what the night looks at closely"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "smoke and not nightly(job='containers')" $(ARGS)

nightly: .venv/.ready
	@echo "==> Jobs of the night"
	@$(BIN)/python -m tests.nightly --workers $(JOBS) $(ARGS)

planted: .venv/.ready
	@echo "==> Faults in copies of the product: which test notices each?"
	@$(BIN)/python -m tests.planted --jobs $(JOBS) $(ARGS)

check: .venv/.ready .venv/protos/.ready
	@echo "==> ruff"
	@$(BIN)/ruff check $(ROOTS) tests benchmarks tools
	@$(BIN)/ruff format --check $(ROOTS) tests benchmarks tools
	@echo "==> mypy --strict"
	@$(BIN)/mypy shared/tideline server/tideline_server client_agent/tideline_agent
	@echo "==> layers, sizes, imports"
	@$(BIN)/python -m pytest tests/architecture
	@echo "==> stubs match federation.proto"
	@$(BIN)/python tools/protos.py --check

chaos: .venv/.ready
	@echo "==> Seeded runs amid kill -9, freezes and cut lines: the same bytes, nothing lost, nothing counted twice"
	@$(BIN)/python -m tests.acceptance.chaos $(ARGS)

faults: .venv/.ready
	@echo "==> Nine faults, one after the other: seconds until the run goes on, and what its user reads"
	@$(BIN)/python -m tests.acceptance.scenarios $(ARGS)

containers: .venv/.ready
	@echo "==> A federation of containers, on networks of their own"
	@$(BIN)/python -m pytest -m nightly -rs --color=no tests/docker $(ARGS)

release: .venv/.ready
	@test -n "$(VERSION)" || { echo 'Which version? For example: make release VERSION=0.2.0' >&2; exit 2; }
	@$(BIN)/python -m tools.release $(VERSION) $(ARGS)

wheel: .venv/.ready
	@echo "==> The wheel of this checkout, in an environment that knows nothing of the checkout"
	@$(BIN)/python -m tests.wheel $(ARGS)

bench: .venv/.ready
	@echo "==> Speed, in ratios to a bare stream of the same bytes"
	@$(BIN)/python benchmarks/transport.py $(ARGS)

protos: .venv/.ready .venv/protos/.ready
	@$(BIN)/python tools/protos.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis

.venv/.ready: pyproject.toml
	@echo "==> Installing Tideline and its tools into .venv (torch is large: two or three minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tideline needs Python 3.11 or newer: make PYTHON=python3.11")'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python tools/install.py .venv/install.log --upgrade pip
	@$(BIN)/python tools/install.py .venv/install.log --editable . --group dev
	@$(BIN)/python -c 'import tideline, torch, grpc, pytest'
	@touch $@

# The generator is older than the packages that run, so it has an environment of its own (pyproject.toml says why).
.venv/protos/.ready: pyproject.toml | .venv/.ready
	@echo "==> Installing the stub generator into .venv/protos"
	@$(PYTHON) -m venv .venv/protos
	@.venv/protos/bin/python tools/install.py .venv/install.log --upgrade pip
	@.venv/protos/bin/python tools/install.py .venv/install.log --group protos
	@touch $@
