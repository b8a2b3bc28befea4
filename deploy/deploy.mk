# SPDX-License-Identifier: Apache-2.0

##@ Kubernetes

# Where images are pushed to and pulled from: a registry and a folder in it.
PREFIX ?= $(or $(REGISTRY),$(registry),localhost/outrigger)
TAG    ?= latest
# The architectures of the images, with commas.
ARCH   ?= $(shell go env GOARCH)
IMAGES := cloud-api-adaptor agent-relay peerpod-ctrl peerpods-webhook node-installer

# An image has the provider that it is for; without one, those linked by default.
IMAGE_TAGS = $(or $(TAGS),$(subst -,_,$(patsubst ibmcloudpowervs,ibmcloud-powervs,$(CLOUD_PROVIDER))))

# Nobody has named images when PREFIX is the one above.
named = $(if $(filter-out file,$(origin PREFIX))$(REGISTRY)$(registry),$(PREFIX))
DEPLOY_ENV = PREFIX='$(named)' TAG='$(TAG)' RESOURCE_CTRL='$(RESOURCE_CTRL)' MONITORING='$(MONITORING)' NODE_INSTALLER='$(NODE_INSTALLER)'
IMAGE_ENV  = PREFIX='$(PREFIX)' TAG='$(TAG)' ARCH='$(ARCH)' VERSION='$(VERSION)' COMMIT='$(COMMIT)' TAGS='$(IMAGE_TAGS)'

.PHONY: image
image: ## Container images as OCI layouts in bin/images (CLOUD_PROVIDER= PREFIX=REGISTRY/FOLDER TAG= ARCH=amd64,arm64)
	@$(IMAGE_ENV) deploy/images.sh $(IMAGES)

.PHONY: image-qemu
image-qemu: podvm ## The image of provider-qemu: QEMU and the pod VM image
	@$(IMAGE_ENV) deploy/images.sh provider-qemu

.PHONY: image-ccm
image-ccm: ## The images of ccm-operator and cloud-controller-manager (PREFIX= TAG= ARCH=)
	@$(IMAGE_ENV) deploy/images.sh ccm-operator cloud-controller-manager

.PHONY: image-csi
image-csi: ## The image of outrigger-csi, with the programs that mount volumes (PREFIX= TAG=)
	@$(IMAGE_ENV) deploy/images.sh outrigger-csi

.PHONY: push
push: ## Push the images in bin/images to PREFIX, with the credentials of `docker login`
	@case '$(PREFIX)' in localhost/*) echo "push: set PREFIX=REGISTRY/FOLDER; $(PREFIX) is this machine" >&2; exit 1 ;; esac
	@for i in bin/images/*; do go run ./cmd/oci-image push $$i '$(PREFIX)'/$$(basename $$i):'$(TAG)' || exit; done

.PHONY: deploy
deploy: ## Install in the cluster of kubectl (CLOUD_PROVIDER= PREFIX= TAG= NODE_INSTALLER=true RESOURCE_CTRL=false MONITORING=true)
	@$(DEPLOY_ENV) deploy/deploy.sh apply '$(CLOUD_PROVIDER)'

.PHONY: undeploy
undeploy: ## Remove it (the same variables)
	@$(DEPLOY_ENV) deploy/deploy.sh delete '$(CLOUD_PROVIDER)'

# The steps and variables of earlier guides. One program makes the whole image,
# from Debian's packages, so there is nothing to build it in and no image of
# another distribution to start from.
.PHONY: podvm-builder podvm-binaries
podvm-builder podvm-binaries: ## Nothing to do: `make podvm-image` does all of it
	@:

# The format that a cloud takes and the file that podvm-image makes of it; the
# others take qcow2.
PODVM_FORMAT_aws     := raw
PODVM_FORMAT_azure   := vhd
PODVM_FORMAT_gcp     := gcp
PODVM_FORMAT_vsphere := ova
PODVM_FORMAT_docker  := docker
PODVM_FILE_raw := podvm.raw
PODVM_FILE_vhd := podvm.vhd
PODVM_FILE_gcp := podvm.tar.gz
PODVM_FILE_ova := podvm.ova
PODVM_FILE_docker := podvm.tar
podvm_format = $(PODVM_FORMAT_$(CLOUD_PROVIDER))
podvm_file   = $(if $(podvm_format),cloud/$(PODVM_FILE_$(podvm_format)),podvm.qcow2)
podvm_result = $(PODVM)/podvm-$(or $(CLOUD_PROVIDER),generic)-amd64.$(subst podvm.,,$(notdir $(podvm_file)))

.PHONY: podvm-image
podvm-image: podvm ## The pod VM image as a cloud takes it: bin/podvm/podvm-PROVIDER-ARCH.EXT (CLOUD_PROVIDER=)
	@[ -z '$(PODVM_DISTRO)$(IMAGE_URL)' ] || echo "podvm-image: PODVM_DISTRO and IMAGE_URL have no effect: the image is made from Debian's packages alone"
	@[ -z '$(podvm_format)' ] || go run ./cmd/podvm-image build --format $(podvm_format) --output $(PODVM)/cloud --cache $(CACHE)/podvm --guest-version $(VERSION) >/dev/null
	@ln -f $(PODVM)/$(podvm_file) $(podvm_result)
	@echo $(podvm_result)
