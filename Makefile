# One command each. Everything is done by a short script in scripts/; the second run of a step does
# nothing when nothing changed.
PY ?= 3.11
TIMES ?= 1000
START ?=
COUNT ?=
FILES ?= 1000000

.PHONY: run dev test test-rust test-python test-interop fuzz check bless bench bench-llm memcheck wheel test-wheel clean help

help:
	@echo "make run      install what is missing, build, run examples/01_unmodified.py under overdrive"
	@echo "make test     Rust tests, the Python suite on CPython 3.11, 3.12 and 3.13, and the tests beside PyTorch and JAX"
	@echo "              (5 GB, installed once into the cache); a suite that passed is not run again while nothing changed"
	@echo "              (AGAIN=1 make test runs all)"
	@echo "make fuzz     generated programs on one CPython until Ctrl-C, as exits come and with exits forced by turns, compared with"
	@echo "              CPython's results; what differs is reduced and kept: make fuzz PY=3.12 START=5000 COUNT=100"
	@echo "make fuzz-gguf a million hostile model files: make fuzz-gguf FILES=10000000 START=5 (a minute for ten million)"
	@echo "make interrupt-llm a thousand generations of SmolLM2 that Ctrl-C stops, and what they leave: make interrupt-llm TIMES=100"
	@echo "make cpython-tests CPython's own tests, plain and with each function promoted, on one CPython (half an hour):"
	@echo "              make cpython-tests PY=3.12 TESTS=\"test_float test_re\"; TESTS=--help says what else can be chosen"
	@echo "make check    formatting, lints, types, allowed arrows, documentation and its links"
	@echo "make bless    accept what the text tests print now"
	@echo "make memcheck tensors under AddressSanitizer (Rust) and valgrind (Python): SEQUENCES=100000 make memcheck"
	@echo "make bench    measure against CPython, Numba and PyPy, write docs/benchmarks.md (8 minutes); installs them, Numba into"
	@echo "              the cache; make bench OPTIONS=--help says what can be chosen"
	@echo "make bench-llm measure language models beside llama.cpp, write docs/benchmarks-llm.md (builds llama.cpp once, 7 minutes);"
	@echo "              make bench-llm OPTIONS=\"--models smollm2,1b,8b\"; OPTIONS=--help says what can be chosen"
	@echo "make bench-programs PY=3.11 measure real programs plain and under overdrive run, write docs/benchmarks-programs.md"
	@echo "make package-tests PY=3.12 the test suites of mpmath, lark and simpy plain and under --policy eager, outcome by outcome"
	@echo "make wheel    one wheel per CPython in dist/, each tried in an empty environment"
	@echo "make dev      the extension only, unoptimised, for one CPython: make dev PY=3.12"
	@echo "make clean    remove what was built in this clone (the cache outside it stays)"

run:
	@scripts/setup
	@scripts/venv 3.11
	@scripts/build_ext 3.11
	.venv/bin/overdrive run examples/01_unmodified.py

dev:
	@scripts/setup
	@scripts/venv $(PY)
	@scripts/build_ext $(PY) --dev

test: test-rust test-python test-interop

test-rust:
	@scripts/setup
	@scripts/test_rust

test-python:
	@scripts/setup
	@scripts/test_python

test-interop:
	@scripts/setup
	@scripts/test_interop

fuzz:
	@scripts/setup
	@scripts/fuzz $(PY) "$(START)" "$(COUNT)"

.PHONY: fuzz-gguf
fuzz-gguf:
	@scripts/setup
	@scripts/fuzz_gguf $(FILES) $(or $(START),0)

.PHONY: interrupt-llm
interrupt-llm:
	@scripts/setup
	@scripts/interrupt_llm $(TIMES)

.PHONY: cpython-tests
cpython-tests:
	@scripts/setup
	@scripts/cpython_tests $(PY) $(TESTS)

check:
	@scripts/setup
	@scripts/check

bless:
	@scripts/setup
	@scripts/bless

bench:
	@scripts/setup
	@scripts/bench $(OPTIONS)

bench-llm:
	@scripts/setup
	@scripts/bench_llm $(OPTIONS)

.PHONY: bench-programs
bench-programs:
	@scripts/setup
	@scripts/bench_programs $(PY) $(OPTIONS)

.PHONY: package-tests
package-tests:
	@scripts/setup
	@scripts/package_tests $(PY) $(OPTIONS)

memcheck:
	@scripts/setup valgrind
	@scripts/memcheck

wheel:
	@scripts/setup
	@scripts/wheel
	@scripts/test_wheel

test-wheel:
	@scripts/test_wheel

clean:
	rm -rf .venv .venv-3.12 .venv-3.13 .make dist python/overdrive/_core*.so
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
