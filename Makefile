# Banyan's front door. The logic stands in scripts/; meson does the building, in build/.
# Variables: BUILD (folder, build), PREFIX (install, /usr/local), DESTDIR, ARGS (for bench).

BUILD  ?= build
PREFIX ?= /usr/local
export BUILD

.PHONY: build serve test quick bench deb check-style lint sanitize tsan install deps clean help
.DEFAULT_GOAL := build

build: ## build the library, the programs and the tests (build/gcc)
	@scripts/test build

test: ## everything: tests, ASan+UBSan, TSan, style, lint
	@scripts/setup --check --quiet || scripts/setup
	@scripts/test all

quick: ## the quick tests only
	@scripts/test quick

sanitize: ## the whole suite under ASan and UBSan
	@scripts/test sanitize

tsan: ## the concurrent suites under ThreadSanitizer
	@scripts/test tsan

check-style: ## clang-format, changing nothing
	@scripts/test style

lint: ## cppcheck
	@scripts/test lint

bench: ## optimised build (build/bench), then the benchmarks
	@scripts/setup --check --quiet || scripts/setup
	@scripts/bench $(ARGS)

serve: ## not there yet
	@echo "make serve: not there yet, it arrives with the server" >&2; exit 2

deb: ## Debian packages, in build/deb
	@scripts/deb

install: ## library, header, pkg-config file, programs
	@scripts/install "$(PREFIX)"

deps: ## install the Debian packages that are missing
	@scripts/setup

clean: ## remove the build folder
	@rm -rf "$(BUILD)"

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22
