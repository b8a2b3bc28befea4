# SPDX-License-Identifier: Apache-2.0
#
# `make help` lists what can be made. `make demo` and `make test` install what
# they need by themselves.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

CACHE   ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/outrigger
TOOLS   := $(CACHE)/tools
PODVM   := $(CURDIR)/bin/podvm
NODE    := $(CURDIR)/bin/node
DEMO    := $(CURDIR)/bin/demo-image
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Build tags choose providers: none links the local ones, `TAGS=qemu` only that.
TAGS    ?=
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
MODULE  := github.com/outrigger/outrigger
LDFLAGS := -s -w -X $(MODULE)/internal/version.Version=$(VERSION) -X $(MODULE)/internal/version.Commit=$(COMMIT)
comma := ,
space := $(subst ,, )
# Compilers and linkers live for seconds: collecting garbage less often saves a
# fifth of their processor time.
# grpc's tracing, which nobody uses, links html/template; since that calls methods by name, the linker then keeps
# all methods of all packages: a fifth of an adaptor. The same tag is wherever something is compiled.
GOBUILD := GOGC=$${GOGC:-400} go build -tags 'grpcnotrace,$(subst $(space),$(comma),$(strip $(TAGS)))' -ldflags '$(LDFLAGS)'

COMMANDS := $(notdir $(wildcard cmd/*))
GOSOURCES = $(shell find . -name '*.go' -not -path './tools/*' 2>/dev/null) go.mod go.sum

# One set of flags for everything that compiles: each package is compiled once
# for programs, tests and vet. Nobody looks at DWARF here, and the compiler is
# faster without.
ifeq (,$(findstring -dwarf=false,$(GOFLAGS))) # else another make has added them
export GOFLAGS := $(shell go env GOFLAGS 2>/dev/null) -trimpath -buildvcs=false -gcflags=all=-dwarf=false -tags=grpcnotrace
endif

export OUTRIGGER_PODVM_DIR ?= $(PODVM)
export OUTRIGGER_CACHE := $(CACHE)
export CGO_ENABLED ?= 0

##@ The two commands of the README

.PHONY: demo
demo: ## Run a pod in its own VM, show its output, remove everything, say what took how long
	@VERSION='$(VERSION)' build/demo.sh

.PHONY: test
test: ## Every promise of SPECIFICATION.md, once: lint, unit, integration, end to end (root)
	@test/kernel.sh $(MAKE) --no-print-directory test-run

.PHONY: test-run
test-run: setup build-all lint-format verify-generated vulncheck kube capi podvm podvm-confidential demo-image
	@test/run.sh test $(TOOLS)

##@ Building

# What runs pods on this machine.
LOCAL := outrigger cloud-api-adaptor agent-relay podvm-image

.PHONY: build
build: ## What runs pods on this machine: outrigger and its parts, into bin/ (TAGS=PROVIDERS)
	@$(GOBUILD) -o bin/ $(LOCAL:%=./cmd/%)

.PHONY: build-all
build-all: ## Every program, into bin/; one of them: make bin/ccm-operator
	@echo "building $(words $(COMMANDS)) programs into bin/"
	@$(GOBUILD) -o bin/ ./cmd/...

# go build knows what is fresh.
.PHONY: $(COMMANDS:%=bin/%)
$(COMMANDS:%=bin/%):
	@$(GOBUILD) -o bin/ ./cmd/$(@F)

.PHONY: podvm
podvm: $(PODVM)/initrd.cpio ## Build the pod VM image (kernel, initramfs, disk) into bin/podvm

$(PODVM)/initrd.cpio: $(GOSOURCES) $(wildcard images/podvm/*)
	@build/setup.sh build
	go run ./cmd/podvm-image build --output $(PODVM) --cache $(CACHE)/podvm --guest-version $(VERSION)

.PHONY: podvm-confidential
podvm-confidential: $(PODVM)/confidential/initrd.cpio ## The same with policies of pods, for QEMU, into bin/podvm/confidential

$(PODVM)/confidential/initrd.cpio: $(PODVM)/initrd.cpio
	go run ./cmd/podvm-image build --confidential --format direct,uki --output $(@D) --cache $(CACHE)/podvm --guest-version $(VERSION)

.PHONY: node-image
node-image: $(NODE)/$(KUBERNETES:%=%/)node.tar ## Build the image of machines that are containers into bin/node (Kubernetes: minutes, the first time); KUBERNETES=v1.35.8: of that version

NODESOURCES = $(shell find images/node internal/machines/nodeimage internal/machines/docker/nodeagent cmd/node-image cmd/node-agent -type f) go.mod go.sum
$(NODE)/node.tar: $(NODESOURCES)
	$(NODEBUILD)
$(NODE)/v%/node.tar: $(NODESOURCES)
	$(NODEBUILD) --kubernetes-version v$*
NODEBUILD = go run ./cmd/node-image build --output $(@D) --cache $(CACHE)/node-image --agent-version $(VERSION)
# Of the version of Kubernetes from which specifications upgrade to that of images/node/kube.
OLDERNODE := $(NODE)/v1.35.8/node.tar

.PHONY: attest-report
attest-report: ## Evidence of this machine and what verifiers say of it, for a report on real hardware, into bin/attest-report.json (root; ONLINE=1 asks AMD or Intel, too)
	@mkdir -p bin
	@go run ./test/attestreport $(if $(ONLINE),-online) > bin/attest-report.json; code=$$?; echo "bin/attest-report.json"; exit $$code

.PHONY: site
site: ## Build the site from docs/ into bin/site (Hugo: 90 s of processor time, the first time)
	@VERSION='$(VERSION)' site/build.sh

.PHONY: site-serve
site-serve: ## Serve the site on the loopback address, and build again what changes
	@VERSION='$(VERSION)' site/build.sh serve

.PHONY: demo-image
demo-image: $(DEMO)/index.json ## Build the container image of the demo

$(DEMO)/index.json: $(wildcard internal/cli/demoimage/*.go internal/ociimage/*.go) | bin/outrigger
	bin/outrigger demo-image --output $(DEMO)

.PHONY: print-demo-image
print-demo-image: ## Print an IMAGE for `outrigger run` that needs no registry
	@$(MAKE) --no-print-directory demo-image >&2
	@echo oci:$(DEMO)

.PHONY: kube
kube: ## Build the Kubernetes programs that tests run, once (5 minutes of processor time)
	@test/kube.sh

.PHONY: capi
capi: kube ## Build the Cluster API programs that tests run, once (2 minutes of processor time)
	@test/capi.sh

.PHONY: setup
setup: ## Install what building and testing need and is missing: Debian packages and pinned Go tools
	@build/setup.sh test $(TOOLS)

.PHONY: generate
generate: setup ## Write again all generated code
	test/generate.sh $(TOOLS)

.PHONY: clean
clean: ## Remove bin/
	rm -rf bin

include deploy/deploy.mk
include config/config.mk
include dist.mk

##@ Checking

.PHONY: test-unit
test-unit: ## The fast loop: unit tests, no root (under 2 minutes when warm; what did not change is not run again)
	@go test -vet=off -ldflags=-s ./...

.PHONY: test-all
test-all: ## Everything at full size, with the race detector: hours; what passed is not run again (root)
	@test/kernel.sh $(MAKE) --no-print-directory test-all-run

.PHONY: test-all-run
test-all-run: setup lint verify-generated build-all kube capi upstream-specs vsphere-modules podvm podvm-confidential node-image $(OLDERNODE) demo-image vulncheck
	@OUTRIGGER_NODE_IMAGE_OLDER=$(OLDERNODE) test/run.sh all $(TOOLS)

.PHONY: test-schedules
test-schedules: ## 1,000 random schedules of faults and crashes for each cloud, 500 of machines and of pools of VMs (25 minutes of processor time, no root)
	OUTRIGGER_SCHEDULES=all go test -count=1 -p 2 -run '^TestSchedules(OfPools)?$$' ./providers/... ./internal/machines/reconciler ./internal/peerpods/controller

.PHONY: test-interop
test-interop: setup build-all podvm demo-image ## Real containerd with our shim and Kata's (KATA_SHIM=PATH), upstream's daemons with ours (UPSTREAM_ADAPTOR=, UPSTREAM_FORWARDER=PATH)
	OUTRIGGER_TEST_ALL=1 OUTRIGGER_TEST_KATA_SHIM='$(abspath $(KATA_SHIM))' \
	  OUTRIGGER_TEST_UPSTREAM_ADAPTOR='$(abspath $(UPSTREAM_ADAPTOR))' OUTRIGGER_TEST_UPSTREAM_FORWARDER='$(abspath $(UPSTREAM_FORWARDER))' \
	  go test -tags integration,grpcnotrace -count=1 -v -timeout 2h ./test/interop/...

.PHONY: test-e2e
test-e2e: setup build-all podvm podvm-confidential kube ## The suite for every provider, in a cluster of its own (CLOUD_PROVIDER=qemu) (root)
	OUTRIGGER_TEST_ALL=1 go test -tags integration,grpcnotrace -count=1 -v -timeout 40m ./test/e2e -provider '$(or $(CLOUD_PROVIDER),qemu)'

.PHONY: test-nodes
test-nodes: setup build-all kube capi node-image ## Cluster API makes three nodes of a Docker Engine from the node image: Ready, pods, restart, deletion (root, 2 GB of memory)
	OUTRIGGER_NODE_IMAGE=$(NODE)/node.tar go test -tags integration,grpcnotrace -count=1 -v -timeout 40m -run '^TestNodes' ./test/capi

.PHONY: upstream-specs
upstream-specs:
	@cd test/capi/upstream && go list -tags e2e -deps -test . >/dev/null

.PHONY: test-capi-upstream
test-capi-upstream: setup build-all kube capi upstream-specs node-image $(OLDERNODE) ## Cluster API's own specifications with both families (docs/capi-upstream.md) (root)
	OUTRIGGER_TEST_ALL=1 OUTRIGGER_NODE_IMAGE=$(NODE)/node.tar OUTRIGGER_NODE_IMAGE_OLDER=$(OLDERNODE) \
	  go test -tags integration,grpcnotrace -count=1 -v -timeout 150m -run '^TestUpstreamSpecs' ./test/capi

# Tests have no network: what vSphere's manager is built from is fetched before.
.PHONY: vsphere-modules
vsphere-modules:
	@cd test/vsphereccm/programs && go list -deps k8s.io/cloud-provider-vsphere/cmd/vsphere-cloud-controller-manager ./vcsim >/dev/null

.PHONY: test-vsphere-ccm
test-vsphere-ccm: setup build-all kube vsphere-modules ## vSphere's own cloud controller manager out of examples/ccm-bundle-vsphere, on a node, at a vCenter without machines (root; 5 minutes of processor time the first time)
	OUTRIGGER_VSPHERE_CCM=1 go test -tags integration,grpcnotrace -count=1 -v -timeout 20m -run '^TestRealManager' ./test/vsphereccm

.PHONY: test-openstack
test-openstack: ## All checks of the contract on a real OpenStack control plane out of Debian's packages, which it installs: 350 packages, 3 GB of memory (root)
	@build/setup.sh openstack
	OUTRIGGER_REAL_OPENSTACK=1 go test -tags integration,grpcnotrace -count=1 -v -timeout 90m -run '^TestOpenStack$$' ./test/realcloud

.PHONY: cluster
cluster: setup build-all kube podvm ## Kubernetes with Outrigger on one node, in namespaces of its own, until ^C (root)
	@go run ./test/cluster/dev

.PHONY: lint
lint: setup ## gofmt, SPDX headers and golangci-lint
	@test/lint.sh $(TOOLS)

.PHONY: lint-quick
lint-quick: setup ## gofmt, SPDX headers and go vet (4 minutes of processor time the first time)
	@test/lint.sh $(TOOLS) --quick

.PHONY: lint-format
lint-format: ## gofmt and SPDX headers
	@test/lint.sh $(TOOLS) --format

.PHONY: verify-generated
verify-generated: setup ## Fail when generated code is stale
	test/generate.sh $(TOOLS) --check

.PHONY: vulncheck
vulncheck: ## Known vulnerabilities, where the database can be reached
	test/vulncheck.sh

.PHONY: bench
bench: setup build-all kube capi podvm podvm-confidential demo-image ## Measure speed and memory, fail on a promise that is not kept; writes docs/benchmarks.md (root)
	test/bench.sh

.PHONY: bench-plot
bench-plot: ## Draw all measured runs of a promise (NAME=relay-added); without NAME the newest of each
	@test/bench.sh $(if $(NAME),--plot '$(NAME)',--list)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	test/fuzz.sh $(or $(FUZZTIME),30s)

.PHONY: pictures
pictures: ## Draw the pictures of docs/architecture.md (needs Debian's graphviz)
	@command -v dot >/dev/null || { echo "pictures: Graphviz is not installed; run: apt-get install graphviz" >&2; exit 1; }
	for f in docs/pictures/*.dot; do dot -Tsvg "$$f" -o "$${f%.dot}.svg" || exit 1; done

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
