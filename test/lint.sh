#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# gofmt, SPDX headers and golangci-lint (.golangci.yml), the integration tests
# included. --quick has go vet in the place of golangci-lint, which takes minutes
# and 5 GB of memory; --format has neither: vet looks at all dependencies too, which
# is four minutes of processor time on a new machine.
set -euo pipefail
usage="usage: test/lint.sh TOOLS_FOLDER [--quick | --format]"
tools=${1:?$usage}
how=${2:-}
[ $# -le 2 ] && [[ $how =~ ^(--quick|--format)?$ ]] || { echo "$usage" >&2; exit 2; }
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
[ "$how" != --format ] || exit 0
# With the flags of the Makefile, so that each dependency is compiled once for all.
export CGO_ENABLED=0 GOFLAGS=${GOFLAGS--trimpath}

# check runs the checks on packages.
if [ -n "$how" ]; then
  echo "lint: go vet only"
  check() { go vet -tags integration,bench,grpcnotrace "$@"; }
else
  echo "lint: golangci-lint"
  (cd tools/lint && GOGC=${GOGC:-400} go build -o "$tools/" tool)
  check() { "$tools/golangci-lint" run "$@"; }
fi
check ./...
echo "lint: provider/plugin, the only package with code for cgo"
CGO_ENABLED=1 check ./provider/plugin
[ -z "$how" ] || exit 0
echo "lint: examples/libvirt-ext, a module of its own"
if ! (cd examples/libvirt-ext && unset CGO_ENABLED && go list -deps ./... tool >/dev/null && check ./...); then
  echo "lint: if Go asks for updates to that go.mod, run: make -C examples/libvirt-ext tidy" >&2
  exit 1
fi
