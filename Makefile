# Every target makes .venv and installs what it needs when that is missing; the second time it is quick.
#   make demo    a coordinator and four agents on this machine, trained and scored     ARGS="--rounds 2"
#   make test    the quick suite, some minutes; its slowest tests and its counts at the end    ARGS="-k archive" JOBS=0
#   make check   style, types, layers, sizes, and the stubs in step with the .proto
#   make nightly all that takes long: long tests, deep properties, chaos, failpoints, soak, containers    ARGS="soak"
#   make planted faults put into copies of the product, each of which a test must notice    ARGS="--to expected"
#   make chaos   runs amid kills, freezes and cut lines, of everything                ARGS="--seeds 5"
#   make faults  nine faults on real processes, timed: what goes on, and what people read   ARGS="--lease 2"
#   make containers   the compose federation, cut, killed and restarted, where a Docker engine answers
#   make bench   speed beside its limits                                                ARGS="--quick"

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
JOBS ?= 2
ROOTS := shared server client_agent protos

.DEFAULT_GOAL := help
.PHONY: help demo test nightly planted check chaos faults containers bench protos clean

help:
	@sed -n 's/^#   //p' Makefile

demo: .venv/.ready
	@echo "==> A federation on this machine: one coordinator, four agents, real digits of four styles"
	@$(BIN)/tideline demo $(ARGS)

test: .venv/.ready
	@echo "==> The test suite"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --durations=10 $(ARGS)

nightly: .venv/.ready
	@echo "==> Everything that takes long"
	@$(BIN)/python -m tests.nightly --jobs $(JOBS) $(ARGS)

planted: .venv/.ready
	@echo "==> Faults planted in copies of the product: which test notices each?"
	@$(BIN)/python -m tests.planted --jobs $(JOBS) $(ARGS)

check: .venv/.ready .venv/protos/.ready
	@echo "==> ruff"
	@$(BIN)/ruff check $(ROOTS) tests benchmarks tools
	@$(BIN)/ruff format --check $(ROOTS) tests benchmarks tools
	@echo "==> mypy --strict"
	@$(BIN)/mypy shared/tideline server/tideline_server client_agent/tideline_agent
	@echo "==> layers, sizes, imports"
	@$(BIN)/python -m pytest tests/architecture
	@echo "==> stubs in step with federation.proto"
	@$(BIN)/python tools/protos.py --check

chaos: .venv/.ready
	@echo "==> Seeded runs amid kill -9, freezes and cut lines: the same bytes, nothing lost, nothing counted twice"
	@$(BIN)/python -m tests.acceptance.chaos $(ARGS)

faults: .venv/.ready
	@echo "==> Nine faults, one after the other: seconds until the run goes on, and what its user reads"
	@$(BIN)/python -m tests.acceptance.scenarios $(ARGS)

containers: .venv/.ready
	@echo "==> A federation of containers, on networks of their own"
	@$(BIN)/python -m pytest -m docker -rs --color=no tests/docker $(ARGS)

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

# The generator is older than what runs, so it lives apart (pyproject.toml says why).
.venv/protos/.ready: pyproject.toml | .venv/.ready
	@echo "==> Installing the stub generator into .venv/protos"
	@$(PYTHON) -m venv .venv/protos
	@.venv/protos/bin/python tools/install.py .venv/install.log --upgrade pip
	@.venv/protos/bin/python tools/install.py .venv/install.log --group protos
	@touch $@
