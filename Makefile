# Banyan's front door. The logic stands in scripts/; meson does the building, in build/.
# Variables: BUILD (folder, build), PREFIX (install, /usr/local), DESTDIR, ARGS (for serve, bench, bench-redis, soak,
# soak-rdma, soak-power, redis-suite, test-rdma, coverage, models).

BUILD  ?= build
PREFIX ?= /usr/local
export BUILD

.PHONY: build serve demo soak soak-rdma soak-power test test-rdma quick redis-suite coverage fuzz mutants bench bench-redis deb models check-style lint sanitize tsan install deps clean help
.DEFAULT_GOAL := build

build: ## build the library, the programs and the tests (build/gcc)
	@scripts/test build

test: ## everything: tests, ASan+UBSan, TSan, fuzzers, models, a sample of mutants, style, lint
	@scripts/setup --check --quiet || scripts/setup
	@scripts/test all

quick: ## the quick tests only
	@scripts/test quick

redis-suite: ## Redis's own tests against banyan serve; fetched with apt-get (ARGS="--fetch", "--left-out", "unit/type/incr")
	@scripts/setup --check --quiet || scripts/setup
	@scripts/test build
	@scripts/redis-suite $(ARGS)

test-rdma: ## every test of RDMA, on Soft-RoCE in virtual machines (ARGS="--quick", "--two-guests", "--list")
	@scripts/setup --check --quiet || scripts/setup
	@scripts/test-rdma $(ARGS)

sanitize: ## the whole suite under ASan and UBSan
	@scripts/test sanitize

tsan: ## the concurrent suites under ThreadSanitizer
	@scripts/test tsan

fuzz: ## the fuzzers, each for FUZZ_SECONDS (8); ARGS="tree store": those alone
	@scripts/test fuzz $(ARGS)

coverage: ## what the tests cover, and the report in build/coverage/report (minutes; ARGS="--quick")
	@scripts/setup --check --quiet || scripts/setup
	@scripts/coverage $(ARGS)

mutants: ## every patch of tests/mutants must be noticed (ARGS="--list")
	@scripts/setup --check --quiet || scripts/setup
	@scripts/mutants $(ARGS)

models: ## the formal models of locks, leaves, ownership and logs, checked with spin (ARGS="--full")
	@scripts/setup --check --quiet || scripts/setup
	@scripts/models $(ARGS)

check-style: ## clang-format, changing nothing
	@scripts/test style

lint: ## cppcheck; includes go down only; files that comments name are there
	@scripts/test lint

bench: ## optimised build (build/bench), then the benchmarks
	@scripts/setup --check --quiet || scripts/setup
	@scripts/bench $(ARGS)

bench-redis: ## optimised build, then banyan serve against redis-server in pairs
	@scripts/setup --check --quiet || scripts/setup
	@scripts/bench --build
	@scripts/bench-redis $(ARGS)

serve: ## build, then a store for Redis clients at 127.0.0.1:6379, kept in build/data (ARGS="--listen ...")
	@scripts/setup --check --quiet || scripts/setup
	@scripts/bench --build
	@exec "$(BUILD)/bench/src/cli/banyan" serve --data "$(BUILD)/data" --durability disk-second $(ARGS)

demo: ## a cluster of four processes with this system's package index in it
	@scripts/setup --check --quiet || scripts/setup
	@scripts/bench --build
	@scripts/demo

soak: ## simulated and real clusters under every fault, without end (ARGS="--minutes 60")
	@scripts/setup --check --quiet || scripts/setup
	@scripts/soak $(ARGS)

soak-rdma: ## clusters over RDMA under every fault, in virtual machines (ARGS="--minutes 120")
	@scripts/setup --check --quiet || scripts/setup
	@scripts/soak-rdma $(ARGS)

soak-power: ## banyan serve at the disk levels in virtual machines whose power is cut, on ext4 and XFS (ARGS="--cuts 25")
	@scripts/setup --check --quiet || scripts/setup
	@scripts/test build
	@scripts/power-guest $(ARGS)

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
