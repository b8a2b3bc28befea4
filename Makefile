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
GOBUILD := CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)'

COMMANDS := $(notdir $(wildcard cmd/*))
GOSOURCES = $(shell find . -name '*.go' -not -path './tools/*' 2>/dev/null) go.mod go.sum

export OUTRIGGER_PODVM_DIR ?= $(PODVM)
export OUTRIGGER_CACHE := $(CACHE)

##@ The two commands of the README

.PHONY: demo
demo: setup build podvm demo-image ## Run a pod in its own VM, show its output, remove everything
	bin/outrigger demo --image oci:$(DEMO)

.PHONY: test
test: setup lint verify-generated build kube capi podvm demo-image test-all vulncheck ## Everything that proves the product: lint, unit, integration, end to end

##@ Building

.PHONY: build
build: ## Put every binary into bin/
	@mkdir -p bin
	@echo "building $(words $(COMMANDS)) binaries into bin/"
	@$(GOBUILD) -o bin/ ./cmd/...
	@ln -sf outrigger bin/kubectl-outrigger

.PHONY: podvm
podvm: $(PODVM)/initrd.cpio ## Build the pod VM image (kernel, initramfs, disk) into bin/podvm

$(PODVM)/initrd.cpio: $(GOSOURCES) $(wildcard podvm/*)
	go run ./cmd/podvm-image build --output $(PODVM) --cache $(CACHE)/podvm --guest-version $(VERSION)

.PHONY: node-image
node-image: $(NODE)/node.tar ## Build the image of machines that are containers into bin/node (Kubernetes: 10 minutes of processor time the first time)

NODESOURCES = $(shell find node internal/nodeimage internal/capi/docker/nodeagent cmd/node-image cmd/node-agent -type f) go.mod go.sum
$(NODE)/node.tar: $(NODESOURCES)
	go run ./cmd/node-image build --output $(NODE) --cache $(CACHE)/node-image --agent-version $(VERSION)

.PHONY: demo-image
demo-image: $(DEMO)/index.json ## Build the container image of the demo

$(DEMO)/index.json: bin/outrigger
	bin/outrigger demo-image --output $(DEMO)

bin/outrigger: $(GOSOURCES)
	@$(MAKE) --no-print-directory build

.PHONY: print-demo-image
print-demo-image: ## Print an IMAGE for `outrigger run` that needs no registry
	@$(MAKE) --no-print-directory demo-image >&2
	@echo oci:$(DEMO)

.PHONY: kube
kube: ## Build the Kubernetes programs that tests run, once (10 minutes of processor time)
	@test/kube.sh

.PHONY: capi
capi: kube ## Build the Cluster API programs that tests run, once (6 minutes of processor time)
	@test/capi.sh

.PHONY: setup
setup: ## Install what is missing: Debian packages and pinned Go tools
	@test/setup.sh $(TOOLS)

.PHONY: generate
generate: setup ## Write again all generated code
	test/generate.sh $(TOOLS)

.PHONY: clean
clean: ## Remove bin/
	rm -rf bin

include deploy/deploy.mk
include config/config.mk

##@ Checking

.PHONY: test-unit
test-unit: ## The fast loop: unit tests, no root (under 2 minutes when warm)
	go test -shuffle=on -ldflags=-w ./...

.PHONY: test-all
test-all: ## Unit, integration and end-to-end tests with the race detector (root)
	test/run.sh $(TOOLS)

.PHONY: test-schedules
test-schedules: ## 1,000 random schedules of faults and crashes for each cloud (15 minutes of processor time, no root)
	OUTRIGGER_SCHEDULES=all go test -count=1 -p 2 -run '^TestSchedules$$' ./providers/... ./internal/capi

.PHONY: test-interop
test-interop: setup build podvm demo-image ## Real containerd with our shim and, where it is on PATH or in /opt/kata/bin, with Kata's
	go test -tags integration -count=1 -v -timeout 40m ./test/interop/...

.PHONY: test-e2e
test-e2e: setup build podvm kube ## The suite for every provider, in a cluster of its own (CLOUD_PROVIDER=qemu) (root)
	go test -tags integration -count=1 -v -timeout 40m ./test/e2e -provider '$(or $(CLOUD_PROVIDER),qemu)'

.PHONY: test-nodes
test-nodes: setup build kube capi node-image ## Cluster API makes three nodes of a Docker Engine from the node image: Ready, pods, restart, deletion (root, 2 GB of memory)
	OUTRIGGER_NODE_IMAGE=$(NODE)/node.tar go test -tags integration -count=1 -v -timeout 40m -run '^TestNodes$$' ./test/capi

.PHONY: test-vsphere-ccm
test-vsphere-ccm: setup build kube ## vSphere's own cloud controller manager out of examples/ccm-bundle-vsphere, on a node, at a vCenter without machines (root; 5 minutes of processor time the first time)
	OUTRIGGER_VSPHERE_CCM=1 go test -tags integration -count=1 -v -timeout 20m -run '^TestRealManager' ./test/vsphereccm

.PHONY: cluster
cluster: setup build kube podvm ## Kubernetes with Outrigger on one node, in namespaces of its own, until ^C (root)
	@go run ./test/cluster/dev

.PHONY: lint
lint: setup ## gofmt, go vet and staticcheck
	test/lint.sh $(TOOLS)

.PHONY: verify-generated
verify-generated: setup ## Fail when generated code is stale
	test/generate.sh $(TOOLS) --check

.PHONY: vulncheck
vulncheck: ## Known vulnerabilities, where the database can be reached
	test/vulncheck.sh

.PHONY: bench
bench: setup build kube capi podvm demo-image ## Measure speed and memory, fail on a promise that is not kept; writes docs/benchmarks.md (root)
	test/bench.sh

.PHONY: bench-plot
bench-plot: ## Draw all measured runs of a promise (NAME=relay-added); without NAME the newest of each
	@test/bench.sh $(if $(NAME),--plot '$(NAME)',--list)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	test/fuzz.sh $(or $(FUZZTIME),30s)

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
