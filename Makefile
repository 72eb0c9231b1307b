# Tidemill's targets. Each sets up what it needs by itself; ARGS goes to the program behind it.
.POSIX:
.PHONY: help setup run test check bench
.DEFAULT_GOAL := help

PYTHON ?=
ARGS ?=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' Makefile
	@echo
	@echo '  ARGS goes on to the program: make run ARGS="--seconds 30", make test ARGS="-k parser"'

setup: ## build .venv: python, uv, java, packages
	@PYTHON="$(PYTHON)" sh scripts/setup.sh

run: setup ## Linear Road, live: expressway traffic, its tolls and accidents, a warehouse to ask
	@.venv/bin/python -m examples.linear_road $(ARGS)

test: setup ## run all tests
	@sh scripts/test.sh $(ARGS)

check: setup ## formatting, lint, types
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

bench: setup ## measure ingest and hot queries beside their peers
	@.venv/bin/python -m benchmarks $(ARGS)
