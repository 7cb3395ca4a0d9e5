# Targets for people and CI; CI runs these and nothing else.
#
#   make test     everything, with real stores; installs what is missing
#   make demo     the race that a lease alone cannot stop, without and with fencegate

SHELL := /bin/bash
CARGO ?= cargo

# Outside the clone, so that a fresh clone starts warm.
CACHE_DIR := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/fencegate
CARGO_TARGET_DIR ?= $(CACHE_DIR)/target
FENCEGATE_VENV ?= $(CACHE_DIR)/venv
export CARGO_TARGET_DIR FENCEGATE_VENV

.PHONY: test demo test-long fmt fmt-check lint doc build release bench bench-micro prereqs man image clean

test: prereqs
	$(CARGO) test --locked
	$(CARGO) test --locked --features must-fail --test integration must_fail
	@$(CARGO) build --locked --quiet   # leave no binary behind whose guards can be switched off

demo: prereqs build
	demo/demo.sh $(CARGO_TARGET_DIR)/debug/fencegate

# The same tests with the full numbers: more rounds, larger bodies, more seeds.
test-long: export FENCEGATE_LONG = 1
test-long: test

fmt:
	$(CARGO) fmt

fmt-check:
	$(CARGO) fmt --check

lint:
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --all-targets --features must-fail -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps

build:
	$(CARGO) build --locked

release:
	scripts/build-release.sh

# Beside nginx and HAProxy; wants two idle cores and some minutes. BENCH has options of bench/run.py.
bench:
	@scripts/prereqs.sh bench
	$(CARGO) build --locked --release --bin fencegate --example bench_sink
	PATH="$$PATH:/usr/sbin" bench/run.py --fencegate $(CARGO_TARGET_DIR)/release/fencegate \
		--sink $(CARGO_TARGET_DIR)/release/examples/bench_sink $(BENCH)

# Single functions.
bench-micro:
	$(CARGO) bench --locked

# Quick when everything is there.
prereqs:
	@scripts/prereqs.sh

man: build
	$(CARGO_TARGET_DIR)/debug/fencegate completions --man man

image:
	docker build -t fencegate .

clean:
	$(CARGO) clean
