#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   test/run.sh test TOOLS   every package, at the size that proves each promise once
#   test/run.sh all TOOLS    every package at full size, with the race detector; what passed
#                            with these sources before is not run again
#
# `go vet` is test/lint.sh's and nobody debugs these programs, so that neither
# vet nor symbols are made for them.
set -euo pipefail
tier=${1:-} tools=${2:-}
case $tier in test | all) ;; *) echo "usage: test/run.sh test|all TOOLS_FOLDER" >&2; exit 2 ;; esac
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
  echo "test: namespaces, tunnels and VMs need root; \`make test-unit\` does not" >&2
  exit 1
fi
out=$PWD/bin/test/$tier
flags=(-timeout 45m)
if [ "$tier" = all ]; then
  # The sources as they are, committed or not.
  sources=$(index=$(mktemp) && cp "$(git rev-parse --git-path index)" "$index" && export GIT_INDEX_FILE=$index && git add -A && git write-tree && rm "$index")
  out=$out-${sources:0:16}
  flags=(-race -timeout 150m)
  export CGO_ENABLED=1 # the race detector's
  export OUTRIGGER_TEST_ALL=1 OUTRIGGER_SCHEDULES=all OUTRIGGER_GUIDE_LONG=1 OUTRIGGER_VSPHERE_CCM=1
  export OUTRIGGER_CAPI_MUTANTS=all OUTRIGGER_CAPI_CONFORMANCE=all OUTRIGGER_CAPI_CONTROL_PLANES=1 OUTRIGGER_E2E_OUTPUT_MIB=1024
  export OUTRIGGER_NODE_IMAGE=$PWD/bin/node/node.tar
else
  rm -rf "$out"
fi
mkdir -p "$out"
# Without an image all tests with VMs would be skipped.
podvm=${OUTRIGGER_PODVM_DIR:-$PWD/bin/podvm}
[ -e "$podvm/initrd.cpio" ] || { echo "test: OUTRIGGER_PODVM_DIR is $podvm, where there is no image of the pod VM; unset it, or run: make podvm PODVM=$podvm" >&2; exit 1; }
# VMs of all packages are restored from what the first of their size has saved.
export QEMU_TEMPLATE_DIR=$PWD/bin/test/templates

# passed prints the packages that earlier runs of this folder saw pass.
passed() { cat "$out"/events-*.json 2>/dev/null | jq -rR 'fromjson? | select(.Action == "pass" and .Test == null) | .Package' | sort -u; }

# pure_packages prints the packages that start no program, themselves or by their tests,
# and whose tests have the same files without `integration`: their results depend on
# sources and on files that they open, which Go's cache looks at.
pure_packages() {
  local format='{{.ImportPath}} {{.TestGoFiles}} {{.XTestGoFiles}} {{.Imports}} {{.TestImports}} {{.XTestImports}} '
  comm -12 <(go list -f "$format" ./... | sort) <(go list -tags integration -f "$format" ./... | sort) |
    grep -vP '[[ ]os/exec[] ]|/outrigger/test/(?!cloudsim|tier)' | cut -d' ' -f1
}

mapfile -t list < <(comm -23 <(go list -tags integration ./... | sort) <(passed))
# The longest come first, those that boot VMs beside those that mostly wait, so
# that the short ones fill what is left at the end.
long=(test/capi test/recovery test/e2e providers/libvirt test/deploy test/guide test/run test/nodes test/interop
  internal/nodes/operator/controller test/carriers internal/machines/docker internal/peerpods/podnetwork providers/qemu test/capi/conformance test/dist)
pure=() first=() others=()
[ "$tier" = all ] || mapfile -t pure < <(comm -12 <(pure_packages) <(printf '%s\n' "${list[@]}"))
for p in "${long[@]}"; do
  first+=($(printf '%s\n' "${list[@]}" | grep "/$p\$" || true))
done
for p in $(comm -23 <(printf '%s\n' "${list[@]}") <(printf '%s\n' "${pure[@]}" "${first[@]}" | sort)); do
  # It skips all without programs of others, after 3 s of linking.
  [[ $p == */test/interop/upstream && $tier != all ]] || others+=("$p")
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
# The runner's closing lines come last, after what is to be said of the run. Line
# by line: awk would print when it has a block full of them.
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
export OUTRIGGER_TEST_PURE="${pure[*]}" OUTRIGGER_TEST_OTHERS="${first[*]} ${others[*]}"
export OUTRIGGER_TEST_FLAGS="${flags[*]}" OUTRIGGER_TEST_ACTIONS=$out/actions.json
export OUTRIGGER_TIMES=$out/times OUTRIGGER_PROCESSOR=$out/processor.jsonl
status=0
GOGC=${GOGC:-400} "$tools/gotestsum" --format pkgname-and-test-fails --jsonfile "$events" "${again[@]}" --raw-command -- test/packages.sh 2>&1 |
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
