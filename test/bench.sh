#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures and writes docs/benchmarks.md; arguments go to the program in
# test/bench, e.g. -only=guest -runs=3, or -only=machines -machine-clusters=30.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
  echo "bench: namespaces and VMs need root" >&2
  exit 1
fi
output=()
[ $# -gt 0 ] || output=(-output "$PWD/docs/benchmarks.md")
go test -tags bench -count=1 -timeout 90m -v ./test/bench -args "${output[@]}" "$@"
