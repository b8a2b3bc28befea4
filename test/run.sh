#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# All tests with the race detector, in random order. `go vet` is test/lint.sh's
# and nobody debugs these programs, so that neither vet nor DWARF is made for
# them: a quarter of the time in which they are linked. Packages that boot VMs
# come last, the longest first; those that mostly wait for libvirt run beside
# everything else, first because long.
set -euo pipefail
tools=${1:?usage: test/run.sh TOOLS_FOLDER}
cd "$(dirname "$0")/.."

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
flaky=$(mktemp)
trap 'rm -f "$flaky"' EXIT
# With OUTRIGGER_TEST_RERUNS=N up to five failing tests are run again, up to N
# times; a data race never is forgiven.
again=()
[ "${OUTRIGGER_TEST_RERUNS:-0}" = 0 ] || again=(
  --rerun-fails="$OUTRIGGER_TEST_RERUNS" --rerun-fails-max-failures=5
  --rerun-fails-abort-on-data-race --rerun-fails-report="$flaky"
)
status=0
# Three at once, on two processors: each waits a third of the time.
"$tools/gotestsum" --format pkgname-and-test-fails "${again[@]}" --packages="${waiting[*]} ${together[*]} ${vms[*]}" -- \
  -p 3 -tags integration -race -vet=off -ldflags=-w -shuffle=on -count=1 -timeout 45m || status=1
if [ -s "$flaky" ]; then
  echo "test: these failed and were run again; those that passed then are flaky and want mending:"
  cat "$flaky"
fi
exit $status
