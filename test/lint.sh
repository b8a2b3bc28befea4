#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# gofmt, go vet and staticcheck, with and without the integration tests.
set -euo pipefail
tools=${1:?usage: test/lint.sh TOOLS_FOLDER}
cd "$(dirname "$0")/.."

unformatted=$(git ls-files '*.go' | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
  printf 'lint: not gofmt-clean:\n%s\n' "$unformatted" >&2
  exit 1
fi
unlicensed=$(git ls-files '*.go' '*.sh' '*.proto' Makefile | grep -v '\.pb\.go$' | xargs -r grep -L 'SPDX-License-Identifier: Apache-2.0' || true)
if [ -n "$unlicensed" ]; then
  printf 'lint: no SPDX header in:\n%s\n' "$unlicensed" >&2
  exit 1
fi
# Built as `make build` builds, so that each dependency is compiled once for both.
export CGO_ENABLED=0 GOFLAGS=-trimpath
echo "lint: go vet"
go vet -tags integration,bench ./...
echo "lint: staticcheck"
"$tools/staticcheck" -tags integration,bench ./...
echo "lint: provider/plugin, the only package with code for cgo"
CGO_ENABLED=1 go vet -tags integration,bench ./provider/plugin
CGO_ENABLED=1 "$tools/staticcheck" -tags integration,bench ./provider/plugin
echo "lint: examples/libvirt-ext, a module of its own"
if ! (cd examples/libvirt-ext && unset CGO_ENABLED && go list -deps ./... tool >/dev/null && go vet ./... && "$tools/staticcheck" ./...); then
  echo "lint: if Go asks for updates to that go.mod, run: make -C examples/libvirt-ext tidy" >&2
  exit 1
fi
