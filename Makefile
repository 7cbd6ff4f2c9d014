# What a person types. Every target installs what it needs and is missing; the builds are CMake presets (CMakePresets.json).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo build test test-full bench check tidy asan tsan tsan-smoke fuzz clean

JOBS ?= $(shell nproc)
RUN_TESTS := tools/run_tests.py
PYTHON = $$(tools/setup-venv.sh torch)
# Sanitizers watch the program, not the Python package, and run the AVX2 kernels where the processor has them.
PROGRAM_ONLY := --ignore=tests/python/test_package.py
SANITIZER_ISA := $(shell grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo && echo avx2 || echo portable)

# These compute for minutes there, over memory that shorter tests of the same code touch as well.
NOT_SANITIZED := -Reference.InFloatKeepsTheBound:Documents.ManyAndLarge

# ThreadSanitizer of g++ 12 cannot place its memory where the kernel randomises addresses by more than 28 bits.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: build  ## train a small GPT on text that Debian ships and let it write
	@tools/setup-debian.sh demo
	@tools/demo.sh build/release/lamina

build:  ## build the program, build/release/lamina, and fused layers for MindSpore
	@tools/setup-debian.sh build
	cmake --preset release -DLAMINA_BUILD_TESTS=OFF
	cmake --build --preset release --parallel $(JOBS) --target lamina_cli lamina_mindspore_ops

test: build-test  ## build everything and run all tests on tiny shapes
	@$(RUN_TESTS) --build build/release --python "$(PYTHON)" --jobs $(JOBS) -- -m "not full"

.PHONY: build-test
build-test:
	@tools/setup-debian.sh build test
	@tools/setup-venv.sh torch
	@tools/setup-venv.sh mindspore || echo "make: MindSpore cannot be installed here: its tests are skipped" >&2
	cmake --preset release -DLAMINA_BUILD_TESTS=ON
	cmake --build --preset release --parallel $(JOBS)
	tools/build_wheel.sh

test-full: build-test tidy asan tsan fuzz  ## all of it: 124M shapes, loss curves, sanitizers
	@tools/setup-debian.sh demo
	@LAMINA_TEST_FULL=1 $(RUN_TESTS) --build build/release --python "$(PYTHON)" --jobs $(JOBS)

bench: build-test  ## measure, with PyTorch and MindSpore side by side
	@tools/bench.sh build/release/lamina "$(PYTHON)" "$$(tools/setup-venv.sh mindspore || true)"

check:  ## format, layers, budgets, symbols of the kernels
	@tools/setup-debian.sh build check
	tools/format.sh
	tools/check_layers.py
	tools/check_budget.py
	cmake --preset release -DLAMINA_BUILD_TESTS=OFF
	cmake --build --preset release --parallel $(JOBS) --target lamina_kernel_objects
	tools/check_nm.sh build/release

tidy:  ## clang-tidy over all sources (minutes)
	@tools/setup-debian.sh build check
	cmake --preset release -DLAMINA_BUILD_TESTS=OFF
	tools/tidy.py build/release $(JOBS)

asan:  ## the tiny tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/setup-debian.sh build test
	cmake --preset asan
	cmake --build --preset asan --parallel $(JOBS)
	@LAMINA_ISA=$(SANITIZER_ISA) ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  GTEST_FILTER=$(NOT_SANITIZED) \
	  $(RUN_TESTS) --build build/asan --label tiny --python "$(PYTHON)" --jobs $(JOBS) -- -m tiny $(PROGRAM_ONLY)

tsan-smoke:  ## the team and whole steps under ThreadSanitizer
	@tools/setup-debian.sh build test
	cmake --preset tsan
	cmake --build --preset tsan --parallel $(JOBS) --target lamina_tsan
	@LAMINA_ISA=$(SANITIZER_ISA) TSAN_OPTIONS=halt_on_error=1 $(FIXED_ADDRESSES) \
	  $(RUN_TESTS) --build build/tsan --label tsan --jobs $(JOBS)

tsan:  ## the same, and the program
	@tools/setup-debian.sh build test
	cmake --preset tsan
	cmake --build --preset tsan --parallel $(JOBS) --target lamina_tsan lamina_cli
	@LAMINA_ISA=$(SANITIZER_ISA) TSAN_OPTIONS=halt_on_error=1 $(FIXED_ADDRESSES) \
	  $(RUN_TESTS) --build build/tsan --label tsan --python "$(PYTHON)" --jobs $(JOBS) -- -m tsan $(PROGRAM_ONLY)

FUZZ_SECONDS ?= 600
fuzz:  ## every parser under AddressSanitizer, FUZZ_SECONDS (600) each
	@tools/setup-debian.sh build test
	cmake --preset asan
	cmake --build --preset asan --parallel $(JOBS) --target lamina_test_fuzz
	tools/fuzz.py build/asan $(FUZZ_SECONDS) $(JOBS)

clean:  ## remove what was built; the virtual environments stay
	rm -rf build
