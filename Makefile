# Every target prints what it does and what each part took (tools/part.sh); all may be run twice in a row.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
SECONDS ?= 60
MINUTES ?= 10
PARTS := build/parts.txt
PART := @tools/part.sh

# Compilations are kept beside the user's other caches, whatever tree they were made in.
export CCACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ccache
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.DEFAULT_GOAL := help
.PHONY: help install-build install-test configure build run wheel check unit blackbox tidy-check types sim fault demo-smoke presets model fuzz test controller real awex-plans awex bench nightly format tidy clean

help: ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install-build: ## install what building needs (Debian packages; root or sudo)
	$(PART) "install: build" tools/install.sh build

install-test: ## install what all the tests need
	$(PART) "install: build and test" tools/install.sh build test

configure:
	$(PART) "configure" cmake --preset release

build: configure ## the programs at build/release/weighlock, tinyengine, tinytrainer
	$(PART) "build" cmake --build --preset release -j $(JOBS) --target weighlock tinyengine tinytrainer

run: install-build build ## the demo: a gateway, a trainer, three engines, seven updates; STAY=1 keeps it up
	$(PART) "demo" build/release/weighlock demo $(if $(filter-out 0,$(STAY)),--stay)

wheel: build ## the Python package with the program inside, at build/wheel
	$(PART) "wheel" python/make_wheel.sh

build-all: configure
	$(PART) "build: programs and tests" cmake --build --preset release -j $(JOBS)

check: ## all tests but those with real engines
	@rm -f $(PARTS)
	@$(MAKE) --no-print-directory build-all
	@$(MAKE) --no-print-directory tidy-check types unit blackbox sim fault model demo-smoke presets
	@tools/part.sh --summary

tidy-check:
	$(PART) "tidy: its own test" python3 tools/tidy_test.py
	$(PART) "tidy: the tree" python3 tools/tidy.py

types:
	$(PART) "types of the Python package" bash -c 'if command -v mypy >/dev/null; then cd python && mypy; else echo "no mypy here: skipped"; fi'

unit:
	$(PART) "unit tests" ctest --test-dir build/release -L unit -j $$(($(JOBS) * 2)) --output-on-failure --no-tests=error

blackbox:
	$(PART) "the programs, over real HTTP" ctest --test-dir build/release -L blackbox -j $(JOBS) --output-on-failure --no-tests=error

sim:
	$(PART) "simulator: 10000 seeds, each place, the mutants" ctest --test-dir build/release -L sim -j $(JOBS) --output-on-failure --no-tests=error

fault:
	$(PART) "fault paths" ctest --test-dir build/release -L fault -j $(JOBS) --output-on-failure --no-tests=error

model: ## search the model of the protocol (docs/model) exhaustively; needs spin
	$(PART) "model: safety and liveness, exhaustively" bash -c 'if command -v spin >/dev/null; then docs/model/check.py; else echo "no spin here: skipped"; fi'

demo-smoke:
	$(PART) "demo" tests/demo/demo.sh build/release

presets:
	$(PART) "clang: pure modules and fault paths" tools/check_preset.sh clang $(JOBS)
	$(PART) "sanitisers: pure modules and fault paths" tools/check_preset.sh asan $(JOBS)

fuzz: ## every fuzz target for SECONDS each (60)
	$(PART) "fuzz targets, $(SECONDS) s each" env JOBS=$(JOBS) tools/fuzz.sh $(SECONDS)

controller:
	$(PART) "AReaL's controller: environment" tests/compat/install_env.sh
	$(PART) "AReaL's controller: its whole life" tests/compat/real_controller.sh build/release
	$(PART) "wheel: made, installed, used" tests/compat/wheel_test.sh build/release

real:
	$(PART) "real engines: environment" tests/real/install_env.sh
	$(PART) "real engines: contract and end to end" tests/real/run.py --suite ci

awex-plans:
	$(PART) "real AWEX: environment" tests/awex/install_env.sh
	$(PART) "real AWEX: plans as we predict them, op for op" bash -c '"$$(tests/awex/install_env.sh --path)"/bin/python tests/awexplan/plan_test.py build/release'

awex: awex-plans ## the real awex package, through the gateway
	$(PART) "real AWEX: transfers and faults" tests/awex/run.py

test: ## install what is needed, and pass everything that CI runs
	@rm -f $(PARTS)
	@$(MAKE) --no-print-directory install-test build-all
	@$(MAKE) --no-print-directory tidy-check types unit blackbox sim fault model demo-smoke presets controller real awex
	@tools/part.sh --summary

bench: build-all ## measure this gateway beside AReaL's, alternating; fails when a wanted figure is missed (docs/benchmarks.md)
	$(PART) "benchmark" tests/bench/run.py $(BENCH)

nightly: ## the tests that take longer; the simulator runs for MINUTES (10)
	@rm -f $(PARTS)
	@$(MAKE) --no-print-directory install-test build-all
	$(PART) "simulator: $(MINUTES) minutes" build/release/sim --minutes $(MINUTES) --keep-going --pairs tests/sim/unreached.txt
	$(PART) "2000 kills of the gateway" tests/crash/kill_test.py build/release --kills 2000
	$(PART) "a fleet of 1000" tests/crash/scale_test.py build/release --workers 1000 --updates 200
	$(PART) "every Nth operation of updates and recoveries fails" env WEIGHLOCK_NTH_STRIDE=1 build/release/nth_test
	$(PART) "fuzz targets, 300 s each" env JOBS=$(JOBS) tools/fuzz.sh 300
	$(PART) "real engines: environment" tests/real/install_env.sh
	$(PART) "real engines: all" tests/real/run.py --suite nightly
	@tools/part.sh --summary

format: ## clang-format over the tree
	$(PART) "format" bash -c 'git ls-files -co --exclude-standard "*.cpp" "*.hpp" | xargs clang-format-14 -i'

tidy: tidy-check configure ## the shape of the tree, and clang-tidy (FILES="a.cpp b.cpp": only these)
	$(PART) "clang-tidy" bash -c 'printf "%s\n" $(or $(FILES),$$(git ls-files "src/*.cpp" "apps/*.cpp")) | xargs -P $(JOBS) -n 1 clang-tidy-14 --quiet -p build/release'

clean: ## remove what was built
	@rm -rf build && echo "removed build/"
