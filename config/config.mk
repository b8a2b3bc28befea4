# SPDX-License-Identifier: Apache-2.0

##@ Cluster API

# The images of the provider of Cluster API.
CAPI_IMAGES := capi-manager cluster-loadbalancer

.PHONY: manifests
manifests: setup ## The part of `make generate` for the Cluster API provider: deep copies, CRDs, RBAC, webhooks
	config/generate.sh $(TOOLS)/controller-gen

.PHONY: capi-image
capi-image: ## Container images of the Cluster API provider as OCI layouts in bin/images (PREFIX= TAG= ARCH=)
	@$(IMAGE_ENV) deploy/images.sh $(CAPI_IMAGES)

.PHONY: release
release: setup $(CAPI_IMAGES:%=bin/%) ## The release of the Cluster API provider in dist/ (VERSION=vX.Y.Z PREFIX=REGISTRY/FOLDER)
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} go run ./cmd/capi-release -version '$(VERSION)' -prefix '$(PREFIX)' -kustomize $(TOOLS)/kustomize -output dist $(CAPI_IMAGES:%=bin/%)

.PHONY: capi-cluster
capi-cluster: setup capi ## A management cluster of Cluster API without a container, until ^C (PROGRAM=infrastructure-NAME=FILE: your manager)
	@go build -o bin/capi-dev ./test/capi/dev && exec bin/capi-dev $(addprefix -program ,$(PROGRAM))
