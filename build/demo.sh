#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a checkout to a pod in its own VM: fetches the few Debian packages that
# it takes while Go compiles the few programs, makes the guest image, runs the
# demo, and ends with a table of what each stage took. What is there already is
# not made again; after an interruption it goes on where it stopped.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/bin/demo cache=${OUTRIGGER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/outrigger}
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
# As in the Makefile, so that what is compiled for the demo is compiled for all.
export CGO_ENABLED=0
case ${GOFLAGS:-} in *-dwarf=false*) ;; *)
  export GOFLAGS="${GOFLAGS:-} -trimpath -buildvcs=false -gcflags=all=-dwarf=false -tags=grpcnotrace"
esac

fail() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}

# at_least HAVE WANT compares versions.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

check_machine() {
  local want have folder free
  want=$(awk '$1 == "go" {print $2}' go.mod)
  [ "$(uname -s)/$(uname -m)" = Linux/x86_64 ] ||
    fail "this machine is $(uname -s)/$(uname -m): the guest image is made of Debian's amd64 packages, so run the demo on Linux/x86_64"
  [ "$(id -u)" = 0 ] || fail "a VM's network needs root: run sudo -E env PATH=\"\$PATH\" make demo"
  command -v go >/dev/null || fail "Go is missing: install Go $want or later from https://go.dev/dl and put it on PATH"
  have=$(cd / && GOTOOLCHAIN=local go env GOVERSION)
  have=${have#go}
  # Since Go 1.21 the toolchain that go.mod asks for is fetched.
  if ! at_least "${have%%[-+ ]*}" "$want" && { ! at_least "$have" 1.21 || [ "$(cd / && go env GOTOOLCHAIN)" = local ]; }; then
    fail "Go $have is too old: install Go $want or later from https://go.dev/dl and put it on PATH"
  fi
  for folder in "$PWD" "$(existing "$(go env GOCACHE)")" "$(existing "$cache")"; do
    free=$(df --output=avail -k "$folder" | tail -n 1)
    [ "$free" -ge 1500000 ] || fail "$folder has $((free / 1000)) MB left and the demo takes 1.5 GB: free some, or name another folder with GOCACHE, GOMODCACHE or OUTRIGGER_CACHE"
  done
}

# existing prints FOLDER or the nearest one above it that is there.
existing() {
  local folder=$1
  while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
  echo "$folder"
}

mkdir -p bin 2>/dev/null || fail "$PWD/bin cannot be made: run this in a checkout that you may write to"
check_machine
mkdir -p "$out"
work=$(mktemp -d)
beside=()
trap 'for p in "${beside[@]}"; do kill -- -"$p" 2>/dev/null || true; done; rm -rf "$work"' EXIT
exec 3>&2 # a trap runs within the redirections of what it interrupts
trap 'echo "demo: interrupted; what is done stays: the next make demo goes on from there" >&3; exit 130' INT TERM
touch "$work/begin"
begun=$(date +%s%N)

# tenths prints the tenths of a second since a time in nanoseconds.
tenths() { echo $((($(date +%s%N) - $1) / 100000000)); }
seconds() { printf '%d.%d' $(($1 / 10)) $(($1 % 10)); }

# stage NAME COMMAND... says how long COMMAND took, and shows what it printed if
# it failed. Stages may run beside each other.
stage() {
  local name=$1 start took
  shift
  start=$(date +%s%N)
  if ! "$@" >"$work/log-$name" 2>&1; then
    tail -n 30 "$work/log-$name" >&2
    explain "$name" "$work/log-$name" >&2
    return 1
  fi
  took=$(tenths "$start")
  echo "$name $took" >>"$work/table"
  printf 'demo: %-10s %6s s\n' "$name" "$(seconds "$took")"
}

# explain says what to do about what a stage printed.
explain() {
  if grep -qi 'no space left on device' "$2"; then
    echo "demo: $1: the disk is full: free some space and run make demo again; it goes on from there"
  elif grep -qE 'dial tcp|lookup .* on |no such host|i/o timeout|connection refused|TLS handshake' "$2"; then
    echo "demo: $1: the network could not be used: see that this machine reaches $(go env GOPROXY) (Go modules) and Debian's mirrors, and run make demo again; it goes on from there"
  else
    echo "demo: $1 failed; its last lines are above"
  fi
}

# begin STAGE... runs a stage beside what follows, in a process group that can be
# ended as one.
begin() {
  set -m
  stage "$@" &
  set +m
  beside+=($!)
}

# compile PROGRAM... with the local provider alone.
compile() {
  GOGC=${GOGC:-400} go build -tags qemu,grpcnotrace -ldflags "-s -w -X github.com/outrigger/outrigger/internal/version.Version=$version" \
    -o "$out/" "${@/#/./cmd/}"
}

# guest makes the image unless the one that is there is newer than its sources.
guest() {
  local made=$out/podvm/initrd.cpio
  [ -e "$made" ] && [ -z "$(find cmd internal provider podvm go.mod -newer "$made" -print -quit)" ] ||
    "$out/podvm-image" build --format initramfs --output "$out/podvm" --cache "$cache/podvm" --guest-version "$version"
}

# The programs need no package, the guest image needs the package lists and its
# builder alone.
begin packages build/setup.sh demo
stage builder compile podvm-image
begin programs compile outrigger cloud-api-adaptor agent-relay
wait "${beside[0]}" || exit 1
begin guest guest
wait "${beside[1]}" || exit 1
wait "${beside[2]}" || exit 1
stage image "$out/outrigger" demo-image --output "$out/image"

start=$(date +%s%N)
code=0
OUTRIGGER_PODVM_DIR=$out/podvm "$out/outrigger" demo --image "oci:$out/image" || code=$?
echo "pods $(tenths "$start")" >>"$work/table"

# fetched prints the bytes of the archives that are newer than this run.
fetched() { find "$@" -type f -newer "$work/begin" -printf '%s\n' 2>/dev/null | awk '{n += $1} END {printf "%.0f", n}'; }
modules=$(fetched "$(go env GOMODCACHE)/cache/download" -name '*.zip')
debs=$(fetched "$cache/podvm" -maxdepth 1 -name '*.deb')
apt=$(sed -nE 's/^setup: Fetched ([0-9.,]+) ([kM]?B) .*/\1 \2/p' "$work/log-packages" |
  awk '{gsub(",", "", $1); n += $1 * ($2 == "MB" ? 1e6 : $2 == "kB" ? 1e3 : 1)} END {printf "%.0f", n}')
mb() { awk -v n="$1" 'BEGIN {printf "%.1f MB", n / 1e6}'; }
echo
echo "stage          seconds"
while read -r name took; do printf '%-12s %8s\n' "$name" "$(seconds "$took")"; done <"$work/table"
printf '%-12s %8s   packages and programs side by side; fetched: %s of Debian packages, %s for the guest, %s of Go modules\n' \
  "all" "$(seconds "$(tenths "$begun")")" "$(mb "$apt")" "$(mb "$debs")" "$(mb "$modules")"
exit $code
