#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs of test/vsphereccm/programs, once for each content of that
# folder, and prints the folder with them: vsphere-cloud-controller-manager, the
# real one, and vcsim, a vCenter without machines. Whoever asks while another
# builds waits for it.
set -euo pipefail
cd "$(dirname "$0")/vsphereccm/programs"

version=$(awk '$1 == "k8s.io/cloud-provider-vsphere" {print $2; exit}' go.mod)
key=$(cat go.mod go.sum vcsim/*.go ../../vsphere-ccm.sh | sha256sum | cut -c1-12)
cache=${OUTRIGGER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/outrigger}/vsphere-ccm
dir=$cache/$version-$key

# build PROGRAM PACKAGE [FLAG]
build() {
  # Other flags than these would bring a second copy of all packages.
  CGO_ENABLED=0 GOGC=${GOGC:-400} GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags "-s -w ${3:-}" -o "$dir/$1" "$2" >&2
}

if [ ! -e "$dir/.complete" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/.lock"
  flock -n 9 || { echo "vsphere-ccm: waiting for another process that builds it" >&2; flock 9; }
fi
if [ ! -e "$dir/.complete" ]; then
  echo "vsphere-ccm: building vSphere's cloud controller manager $version into $dir" >&2
  echo "vsphere-ccm: the first time this takes about five minutes of processor time, one where the product was built before" >&2
  started=$SECONDS
  rm -rf "$dir"
  mkdir -p "$dir"
  build vsphere-cloud-controller-manager k8s.io/cloud-provider-vsphere/cmd/vsphere-cloud-controller-manager "-X main.version=$version"
  build vcsim ./vcsim
  touch "$dir/.complete"
  echo "vsphere-ccm: built in $((SECONDS - started)) s" >&2
  # Of builds for other contents, what nobody has used for a month.
  find "$cache" -mindepth 2 -maxdepth 2 -name .complete -mtime +30 -printf '%h\0' | xargs -0r rm -rf
fi
touch -c "$dir/.complete" 2>/dev/null || true # somebody else's cache will do
echo "$dir"
