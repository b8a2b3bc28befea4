#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# All tests with the race detector, in random order. `go vet` is test/lint.sh's
# and nobody debugs these programs, so that neither vet nor DWARF is made for
# them: a quarter of the time in which they are linked. Packages that boot VMs
# come last and two at a time, since they need the processors for themselves,
# the longest first; those that mostly wait for libvirt run beside everything
# else, first because long.
set -euo pipefail
tools=${1:?usage: test/run.sh TOOLS_FOLDER}
cd "$(dirname "$0")/.."
# `make test-soak` has all of them.
export OUTRIGGER_ROUNDS=${OUTRIGGER_ROUNDS:-15}

if [ "$(id -u)" != 0 ]; then
  echo "test: namespaces, tunnels and VMs need root; \`make test-unit\` does not" >&2
  exit 1
fi
mapfile -t all < <(go list -tags integration ./...)
vms=() together=() waiting=()
for p in "${all[@]}"; do
  case $p in
    */providers/libvirt | */test/carriers) waiting+=("$p") ;;
    */test/cloudsim* | */test/cloudinit) together+=("$p") ;;
    */test/run | */test/e2e | */test/interop | */test/recovery) vms=("$p" "${vms[@]}") ;;
    */test/* | */providers/qemu) vms+=("$p") ;;
    *) together+=("$p") ;;
  esac
done
flaky=$(mktemp -d)
trap 'rm -rf "$flaky"' EXIT
# run AT_ONCE PACKAGE... tests packages. With OUTRIGGER_TEST_RERUNS=N up to five
# failing tests are run again, up to N times; a data race never is forgiven.
run() {
  local at_once=$1 again=()
  shift
  [ "${OUTRIGGER_TEST_RERUNS:-0}" = 0 ] || again=(
    --rerun-fails="$OUTRIGGER_TEST_RERUNS" --rerun-fails-max-failures=5
    --rerun-fails-abort-on-data-race --rerun-fails-report="$flaky/$at_once"
  )
  "$tools/gotestsum" --format pkgname-and-test-fails "${again[@]}" --packages="$*" -- \
    -p "$at_once" -tags integration -race -vet=off -ldflags=-w -shuffle=on -count=1 -timeout 35m
}
status=0
run 3 "${waiting[@]}" "${together[@]}" || status=1
[ ${#vms[@]} = 0 ] || run 2 "${vms[@]}" || status=1
if [ -n "$(cat "$flaky"/* 2>/dev/null)" ]; then
  echo "test: these failed and were run again; those that passed then are flaky and want mending:"
  cat "$flaky"/*
fi
exit $status
