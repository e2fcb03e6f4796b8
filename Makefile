# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# Refract. `make help` lists what there is to do.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Where the tools are kept between runs and checkouts (default ~/.cache/refract).
ifdef REFRACT_CACHE
export REFRACT_CACHE
endif

# One set of build flags for tests, commands and images: what one of them has compiled, the others find in Go's cache, in every checkout.
export GOFLAGS := $(strip -trimpath $(GOFLAGS))
export CGO_ENABLED ?= 0

# The packages whose code runs on several goroutines: `make test-race` runs all of them under the race detector, which takes an hour of
# processor time. `make test` does so with those that start no clusters, and with the tests of the engine in which everything happens at once.
CONCURRENT := host vk controllers sdk/plugintest internal/cmdutil test/support/testenv internal/connection internal/dynamicclient cmd/controller-manager
concurrent_pattern := /($(subst $(eval ) ,|,$(CONCURRENT)))(/|$$)
RACE := host sdk/plugintest vk/reflection/internal vk/reflection/internal/pods vk/namespaces vk/heartbeat controllers/internal/workers controllers/internal/report internal/cmdutil internal/pinger
race_pattern := /($(subst $(eval ) ,|,$(RACE)))(/|$$)
RACE_TESTS := TestStories|TestNothingIsLostInAHurry
# The packages that take a minute or more. They start first, so that none of them is left to run alone at the end. One that compiles is
# between those that start many clusters, so that the clusters do not all start at once.
SLOW := vk/reflection test/join build/images charts vk/app controllers/shadowpod vk/node controllers/foreigncluster test/hostile \
  build/release cmd/refractctl/cli controllers/namespacemap test/support/testenv controllers/namespaceoffloading controllers/plugin controllers/credentials
# For each package. The slowest takes up to fifteen minutes on two cores, longer on a slow machine.
TEST_TIMEOUT ?= 40m
# Packages that are tested at once: as many as processors, because a test of clusters keeps one processor busy. With three packages on two
# processors, a test that takes 90 seconds alone took 330, and half as much processor time again.
PACKAGES_AT_ONCE ?= $(shell nproc)
FUZZ_TIME ?= 30s
# A failed test runs a second time when all others have ended, unless more than five have failed, there is a data race, or the process has
# panicked. Both results are printed. Many control planes share the processors here, and a pause of a few seconds in one of them can end a
# watch that a test counts. A fault that shows in every second run still fails a quarter of all runs.
gotestsum := go tool -modfile=hack/gotestsum/go.mod gotestsum --format=standard-quiet --rerun-fails=1 --rerun-fails-max-failures=5 \
  --rerun-fails-run-root-test --rerun-fails-abort-on-data-race

##@ Use

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: tools
tools: ## Build the pinned test control planes and TinyGo into the cache (once)
	@hack/tools.sh

.PHONY: node-tools
node-tools: ## Build what real nodes consist of, too: kubelet, containerd, runc, CoreDNS, … (once; Debian, root)
	@hack/tools.sh --nodes

.PHONY: liqo-tools
liqo-tools: ## Build Liqo, for the tests of what runs beside it (once)
	@hack/tools.sh --liqo

.PHONY: conformance-tools
conformance-tools: ## Build Kubernetes' end-to-end tests and what their images run (once; Debian)
	@hack/tools.sh --conformance

.PHONY: tinygo
tinygo: ## Build the pinned TinyGo alone (what hack/tinygo/build-plugin.sh falls back to)
	@hack/tinygo/build.sh

##@ Develop

.PHONY: build
build: ## Compile everything; the commands land in bin/, refractctl also under the names of the kubectl plugin
	go build ./...
	go build -ldflags='-s -w' -o bin/ ./cmd/...
	ln -sf refractctl bin/kubectl-refract
	ln -sf refractctl bin/kubectl_complete-refract

.PHONY: install
install: ## Install refractctl, also as kubectl plugin, into the folder of `go install`
	go install -ldflags='-s -w' ./cmd/refractctl
	@bin=$$(go env GOBIN); bin=$${bin:-$$(go env GOPATH)/bin}; \
	ln -sf refractctl "$$bin/kubectl-refract"; ln -sf refractctl "$$bin/kubectl_complete-refract"

.PHONY: images
images: ## Build container images for amd64 and arm64 into dist/, as OCI archives (ARGS=--push=REGISTRY to push them)
	go run ./build/images --output=dist $(ARGS)

.PHONY: release
release: ## Make the files of the tagged version in dist/; with PUSH=REGISTRY push its images and its chart (docs/releasing.md)
	go run ./build/release --output=dist $(if $(PUSH),--push=$(PUSH)) $(ARGS)

.PHONY: plugins
plugins: ## Rebuild the WebAssembly modules of plugins/*, examples/plugins/* and the test of the SDK
	@hack/plugins.sh

# `make lint` runs all checks of vet; those of go test are left out here. The packages are compiled for the race detector while the first
# tests run, with the processor time that these leave. REFRACT_TESTS_UNTIL (seconds since 1970) bounds the run, see test/support/short.
.PHONY: test
test: tools ## Run the tests on real control planes, those of concurrency under the race detector; those of real nodes are in test-real
	@status=0; \
	race=$$(go list ./... | grep -E '$(race_pattern)'); \
	CGO_ENABLED=1 nice -n 19 go list -race -test -deps -export $$race ./vk/reflection >/dev/null & ahead=$$!; \
	trap 'kill $$ahead 2>/dev/null || true' EXIT; \
	all=$$({ printf "$$(go list -m)/%s\n" $(SLOW); go list ./...; } | grep -v '/test/nodes$$' | awk '!seen[$$0]++'); \
	$(gotestsum) --packages="$$(grep -vE '$(race_pattern)' <<<"$$all")" -- -vet=off -p $(PACKAGES_AT_ONCE) -timeout $(TEST_TIMEOUT) || status=1; \
	$(gotestsum) --packages=./host -- -vet=off -timeout $(TEST_TIMEOUT) -run '^TestFuelPaysForTheHost$$' || status=1; \
	if [ "$$(date +%s)" -gt "$${REFRACT_TESTS_UNTIL:-9999999999}" ]; then \
	  echo 'test: the race detector is left out, because the time in REFRACT_TESTS_UNTIL has passed'; exit $$status; \
	fi; \
	wait $$ahead || true; \
	export CGO_ENABLED=1; \
	$(gotestsum) --packages="$$race" -- -vet=off -p $(PACKAGES_AT_ONCE) -race -timeout $(TEST_TIMEOUT) || status=1; \
	$(gotestsum) --packages=./vk/reflection -- -vet=off -race -timeout $(TEST_TIMEOUT) -run '^($(RACE_TESTS))$$' || status=1; \
	exit $$status

# -vet=off: see test.
.PHONY: test-fast
test-fast: ## Run the tests that need no control plane (90 s), and list those that it leaves out; for use while editing
	@go test -short -vet=off -json ./... | go run ./hack/leftout

.PHONY: test-race
test-race: tools ## Run every test of concurrent code under the race detector, on real control planes
	CGO_ENABLED=1 go test -p $(PACKAGES_AT_ONCE) -race -timeout $(TEST_TIMEOUT) $$(go list ./... | grep -E '$(concurrent_pattern)')

.PHONY: test-real
test-real: tools node-tools ## Run the tests that need real nodes (Debian, root)
	REFRACT_NODES=required $(gotestsum) --packages='./test/nodes ./test/support/testenv/...' -- -timeout $(TEST_TIMEOUT) -run 'RealNodes|Machines'

.PHONY: test-liqo
test-liqo: tools node-tools liqo-tools ## Run the tests beside Liqo itself, on real nodes (Debian, root)
	REFRACT_NODES=required REFRACT_LIQO=1 go test -v -timeout $(TEST_TIMEOUT) ./test/liqo
	REFRACT_LIQO=1 go test -v -timeout $(TEST_TIMEOUT) -run TestLiqoClient ./test/network

.PHONY: test-liqo-suites
test-liqo-suites: tools node-tools liqo-tools ## Run Liqo's own suites with Liqo alone and with Refract, and print a table (half an hour, root)
	REFRACT_NODES=required REFRACT_LIQO=suites go test -v -timeout 120m -run TestSuitesOfLiqo ./test/liqo

.PHONY: test-conformance
test-conformance: tools node-tools conformance-tools ## Run Kubernetes' own tests on a virtual and on a plain node (FOCUS=REGEXP COLUMN=plain|virtual ARGS=--help; hours, root)
	@go run ./test/conformance $(if $(FOCUS),--focus='$(FOCUS)') $(if $(COLUMN),--column=$(COLUMN)) $(ARGS)

.PHONY: test-skew
test-skew: tools node-tools ## Join clusters of which one runs an earlier revision, and upgrade it, on real nodes (FROM=REVISION; Debian, root)
	@[ -n "$(FROM)" ] || { echo 'test-skew: say which revision the older cluster runs: FROM=REVISION' >&2; exit 2; }
	REFRACT_NODES=required REFRACT_SKEW=$(FROM) go test -v -timeout $(TEST_TIMEOUT) -run TestVersionSkew ./test/nodes

.PHONY: test-idle
test-idle: tools node-tools ## Count the writes about ten plugins on three idle virtual nodes, on real nodes (PERIOD=1h; Debian, root)
	@[ -n "$(PERIOD)" ] || { echo 'test-idle: say for how long: PERIOD=1h' >&2; exit 2; }
	REFRACT_NODES=required REFRACT_IDLE=$(PERIOD) go test -v -timeout 24h -run TestIdlePlugins ./test/nodes

# Lines that a branch adds must not be too long; there are older ones. On the base itself nothing is added.
LINT_BASE ?= $(shell git rev-parse --verify --quiet main >/dev/null && echo main || echo origin/main)
golangci := go tool -modfile=hack/lint/go.mod golangci-lint
.PHONY: lint
lint: ## Check formatting, go vet, staticcheck and the conventions in .golangci.yml
	$(golangci) run --disable=lll ./...
	@if git rev-parse --verify --quiet $(LINT_BASE) >/dev/null; then \
	  $(golangci) run --enable-only=lll --new-from-merge-base=$(LINT_BASE) ./...; \
	else echo 'lint: there is no $(LINT_BASE) to compare with, the length of lines is not checked' >&2; fi

.PHONY: verify
verify: verify-plugins ## Check that everything generated is what the sources give

.PHONY: verify-plugins
verify-plugins: # each generator adds its own check to `verify` by a line `verify: verify-<what>`
	@hack/plugins.sh --check

##@ Generate

.PHONY: generate
generate: ## Write deepcopy methods, CRDs, their reference, the chart's roles and the table of durations from the Go sources
	@hack/generate.sh

.PHONY: verify-generate
verify: verify-generate
verify-generate:
	@hack/generate.sh --check

##@ See it run

.PHONY: demo
demo: tools ## Watch it work: two real clusters, an application offloaded, plugins swapped (ARGS=--keep leaves it up)
	@go run ./test/demo $(ARGS)

.PHONY: demo-real
demo-real: tools node-tools ## Watch it on two clusters with real nodes: a web shop, its traffic, a line that is cut (Debian, root)
	@go run ./test/demo --real $(ARGS)

.PHONY: chaos
chaos: tools ## Break two joined clusters at random, and check that nothing is lost (ARGS='--rounds=200 --seed=1')
	@go run ./test/chaos $(ARGS)

ROUNDS ?= 20
.PHONY: chaos-network
chaos-network: tools ## Break gateways, agents and the line between two clusters at random, in namespaces (root; ROUNDS=20 SEED=1)
	@cd test/network && REFRACT_NODES=required REFRACT_NETWORK_ROUNDS=$(ROUNDS) REFRACT_NETWORK_SEED=$(SEED) \
	  go test -vet=off -count=1 -timeout $(TEST_TIMEOUT) -run '^TestNetworkChaos$$' -v

HOSTILE ?= 400,400
.PHONY: hostile
hostile: tools ## One consumer against the memory of everybody else, with more objects than in make test (HOSTILE=400,400: sent, stored)
	@REFRACT_HOSTILE=$(HOSTILE) go test -count=1 -timeout=30m -run='^TestNobodysMemoryIsAnothersToSpend$$' -v ./test/hostile

##@ Measure

.PHONY: bench
bench: ## Benchmarks of the WebAssembly host against native code, with and without fuel
	@hack/bench.sh

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZ_TIME (default 30s) each, and count the executions
	@hack/fuzz.sh $(FUZZ_TIME)

.PHONY: bench-e2e
bench-e2e: tools ## Cost of offloading 1,000 pods and 1,000 Services, on two real clusters (ARGS=--pods=100 for less)
	@go run ./test/bench $(ARGS)

# In the folder of the package, go test prints while it runs.
.PHONY: bench-network
bench-network: tools ## Cost of the network between clusters, in namespaces (root; ARGS=-slack=1.5 on a busy machine, -judge=false: only print)
	@cd test/network && REFRACT_NODES=required go test -vet=off -count=1 -timeout $(TEST_TIMEOUT) -run '^TestCosts$$' \
	  -args -rounds=5 -judge $(ARGS)
