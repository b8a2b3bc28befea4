# SPDX-License-Identifier: Apache-2.0

##@ Releasing

# What is handed to users without a compiler. DIST_ONLY makes some of it: archive,
# deb, kubectl, images, charts, crds, capi. DIST_KEY is a private key, whose
# password is in COSIGN_PASSWORD or in the file DIST_KEY_PASSWORD_FILE.
DIST_ARCH ?= amd64,arm64

.PHONY: dist
dist: setup ## Packages, archives, images, charts, SBOM and checksums for users without Go, in bin/dist (VERSION=vX.Y.Z PREFIX= DIST_KEY= DIST_ONLY= DIST_ARCH=)
	@CGO_ENABLED=0 go build -o bin/outrigger-dist ./cmd/outrigger-dist
	@bin/outrigger-dist -version '$(VERSION)' -prefix '$(PREFIX)' -arch '$(DIST_ARCH)' -only '$(DIST_ONLY)' -output bin/dist -cache '$(CACHE)/podvm' \
	  -kustomize '$(TOOLS)/kustomize' -key '$(DIST_KEY)' -key-password-file '$(DIST_KEY_PASSWORD_FILE)'
