#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
test/bench.sh                            measure everything, write docs/benchmarks.md
test/bench.sh -promise=NAME[,NAME]       measure only these promises
test/bench.sh -only=TEXT [-runs=N]       measure only what has TEXT in its name: size, carriers, start, go-benchmarks,
                                         memory, monitor, guest, run, pool-vm, large-image, configmap, attestation,
                                         volumes, clouds, machines, ccm, ccm-operator
test/bench.sh --list                     the promises, and what was measured of them last
test/bench.sh --plot NAME                all runs of a promise

Each run is compared with what SPECIFICATION.md promises (test/bench/promises) and adds
a line to bench-history.jsonl in $XDG_CACHE_HOME/outrigger. Exit status: 0 all promises that were asked for are
kept; 1 one is not kept, or did not run, or a measurement failed; 3 none is known to be broken, but one that
wants an idle machine was not kept on a busy one. (make makes 2 of either.) Further
arguments are those of the program in test/bench: -machine-clusters=30, -operator-peer=FILE,
-peer="PROGRAM libvirt -uri qemu:///system" (another cloud-api-adaptor, in the measurement run; its VMs
need leave to pull from a registry without TLS on this machine).
TEXT
}

history=${OUTRIGGER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/outrigger}/bench-history.jsonl
case ${1:-} in
  -h | --help) usage; exit ;;
  --list) exec go run ./test/bench/judge -history "$history" -list ;;
  --plot) exec go run ./test/bench/judge -history "$history" -plot "${2:?test/bench.sh --plot NAME; --list shows the names}" ;;
esac
if [ "$(id -u)" != 0 ]; then
  echo "bench: namespaces and VMs need root" >&2
  exit 1
fi

output=()
[ $# -gt 0 ] || output=(-output "$PWD/docs/benchmarks.md")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
measured=0 judged=0
go build -o "$work/judge" ./test/bench/judge # go run would hide its exit status
go test -tags bench,grpcnotrace -count=1 -timeout 90m -v ./test/bench -args -figures "$work/figures.json" "$@" || measured=1
"$work/judge" -figures "$work/figures.json" -history "$history" "${output[@]}" || judged=$?
if [ $measured != 0 ]; then
  echo "bench: a measurement failed; its log is above"
  exit 1
fi
exit $judged
