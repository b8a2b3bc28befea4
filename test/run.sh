#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   test/run.sh test TOOLS   every package, at the size that proves each promise once
#   test/run.sh all TOOLS    every package at full size, with the race detector; what passed
#                            with these sources before is not run again
#
# `go vet` is test/lint.sh's and nobody debugs these programs, so that neither
# vet nor symbols are made for them. Packages that mostly wait begin first, those
# that boot VMs come last, the longest first.
set -euo pipefail
tier=${1:-} tools=${2:-}
case $tier in test | all) ;; *) echo "usage: test/run.sh test|all TOOLS_FOLDER" >&2; exit 2 ;; esac
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
  echo "test: namespaces, tunnels and VMs need root; \`make test-unit\` does not" >&2
  exit 1
fi
out=$PWD/bin/test/$tier
flags=(-tags integration -vet=off -ldflags=-s -count=1 -shuffle=on -timeout 45m)
if [ "$tier" = all ]; then
  # The sources as they are, committed or not.
  sources=$(index=$(mktemp) && cp "$(git rev-parse --git-path index)" "$index" && export GIT_INDEX_FILE=$index && git add -A && git write-tree && rm "$index")
  out=$out-${sources:0:16}
  flags+=(-race -timeout 90m)
  export CGO_ENABLED=1 # the race detector's
  export OUTRIGGER_TEST_ALL=1 OUTRIGGER_SCHEDULES=all OUTRIGGER_GUIDE_LONG=1 OUTRIGGER_VSPHERE_CCM=1
  export OUTRIGGER_CAPI_MUTANTS=all OUTRIGGER_CAPI_CONFORMANCE=all OUTRIGGER_CAPI_CONTROL_PLANES=1 OUTRIGGER_E2E_OUTPUT_MIB=1024
  export OUTRIGGER_NODE_IMAGE=$PWD/bin/node/node.tar
else
  rm -rf "$out"
fi
mkdir -p "$out"

# passed prints the packages that earlier runs of this folder saw pass.
passed() { cat "$out"/events-*.json 2>/dev/null | jq -rR 'fromjson? | select(.Action == "pass" and .Test == null) | .Package' | sort -u; }

mapfile -t list < <(comm -23 <(go list -tags integration ./... | sort) <(passed))
vms=() together=() waiting=()
for p in "${list[@]}"; do
  case $p in
    */test/interop/upstream) [ "$tier" != all ] || vms+=("$p") ;; # skips all without programs of others: 3 s of linking
    */providers/libvirt | */test/carriers) waiting+=("$p") ;;
    */test/cloudsim* | */test/cloudinit | */test/times) together+=("$p") ;;
    */test/run | */test/e2e | */test/interop | */test/recovery) vms=("$p" "${vms[@]}") ;;
    */test/* | */providers/qemu) vms+=("$p") ;;
    *) together+=("$p") ;;
  esac
done
[ ${#list[@]} -gt 0 ] || { echo "test: every package passed with these sources; remove $out to run them again"; exit 0; }

# With OUTRIGGER_TEST_RERUNS=N up to five failing tests are run again, up to N
# times; a data race never is forgiven.
again=()
[ "${OUTRIGGER_TEST_RERUNS:-0}" = 0 ] || again=(
  --rerun-fails="$OUTRIGGER_TEST_RERUNS" --rerun-fails-max-failures=5
  --rerun-fails-abort-on-data-race --rerun-fails-report="$out/flaky"
)
rm -f "$out"/flaky "$out"/actions.json
go build -o "$out/times" ./test/times
events=$out/events-$(date +%s).json
# Three packages at once, on two processors: each waits a third of the time. The
# runner's closing lines come last, after what is to be said of the run.
# Compilers and linkers collect garbage less often, tests as always.
# Line by line: awk would print when it has a block full of them.
hold_closing_lines() {
  local held=
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
    "DONE "*) held+=$line$'\n' ;;
    *) printf '%s%s\n' "$held" "$line" && held= ;;
    esac
  done
  printf '%s' "$held" >"$out/closing"
}
status=0
GOGC=${GOGC:-400} "$tools/gotestsum" --format pkgname-and-test-fails --jsonfile "$events" "${again[@]}" --packages="${waiting[*]} ${together[*]} ${vms[*]}" -- \
  -p 3 "${flags[@]}" -debug-actiongraph="$out/actions.json" -exec "env --unset=GOGC $out/times run $out/processor.jsonl" 2>&1 |
  hold_closing_lines || status=1
"$out/times" report -json "$events" -processor "$out/processor.jsonl" -actions "$out/actions.json" >"$out/times.md" || true
echo "test: where the time went: $out/times.md"
"$out/times" report -json "$events" -skipped | sed '1i test: not run, each with its reason:'
if [ -s "$out/flaky" ]; then
  echo "test: these failed and were run again; those that passed then are flaky and want mending:"
  cat "$out/flaky"
fi
cat "$out/closing"
exit $status
