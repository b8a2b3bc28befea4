#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Cluster API programs of test/capi/core, once for each content of
# that folder, and prints the folder with them: core, kubeadm-bootstrap,
# kubeadm-control-plane, clusterctl, capd and our workload, and in providers/
# what clusterctl installs of each. Whoever asks while another builds waits for
# it.
set -euo pipefail
cd "$(dirname "$0")/capi/core"

version=$(awk '$1 == "sigs.k8s.io/cluster-api" {print $2; exit}' go.mod)
key=$(cat go.mod go.sum workload/*.go ../../capi.sh | sha256sum | cut -c1-12)
cache=${OUTRIGGER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/outrigger}/capi
dir=$cache/$version-$key

# build PROGRAM PACKAGE [FLAG...]
build() {
  local program=$1 package=$2
  shift 2
  # The flags of the Makefile: with others all packages would be compiled again.
  CGO_ENABLED=0 GOGC=${GOGC:-400} GOFLAGS=-mod=readonly go build -v -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags "-s -w$flags" -o "$dir/$program" "$package" 2>&1 |
    awk '/^[a-z0-9.]+\/[^ ]*$|^[a-z]+$/ { if (++n % 200 == 0) { print "capi: " n " packages"; fflush() } next } !/^go: downloading/' >&2
}

# provider NAME FOLDER KIND writes what a release of a provider consists of.
provider() {
  local config=$dir/config/$1 release=$dir/providers/$1/$version
  mkdir -p "$config" "$release"
  cp -r "$2/config/." "$config"
  chmod -R u+w "$config"
  "$kubectl" kustomize "$config/default" >"$release/$3-components.yaml"
  install -m 644 "$metadata" "$release/metadata.yaml"
}

if [ ! -e "$dir/.complete" ]; then
  kubectl=$(../../kube.sh)/kubectl
  mkdir -p "$cache"
  exec 9>"$cache/.lock"
  flock -n 9 || { echo "capi: waiting for another process that builds Cluster API" >&2; flock 9; }
fi
if [ ! -e "$dir/.complete" ]; then
  echo "capi: building Cluster API $version into $dir" >&2
  echo "capi: the first time this takes about two minutes of processor time, 1 GB of Go's build cache and the download of 100 MB" >&2
  started=$SECONDS
  rm -rf "$dir"
  mkdir -p "$dir"
  minor=${version#v1.}
  flags=""
  for value in gitVersion="$version" gitMajor=1 gitMinor="${minor%%.*}" gitTreeState=clean; do
    flags+=" -X sigs.k8s.io/cluster-api/version.$value"
  done
  module=sigs.k8s.io/cluster-api
  build core $module/core
  build kubeadm-bootstrap $module/bootstrap/kubeadm
  build kubeadm-control-plane $module/controlplane/kubeadm
  build clusterctl $module/cmd/clusterctl
  build capd $module/test/infrastructure/docker
  build workload ./workload
  source=$(go list -m -f '{{.Dir}}' $module)
  metadata=$source/metadata.yaml
  provider cluster-api "$source/core" core
  provider bootstrap-kubeadm "$source/bootstrap/kubeadm" bootstrap
  provider control-plane-kubeadm "$source/controlplane/kubeadm" control-plane
  provider infrastructure-docker "$(go list -m -f '{{.Dir}}' $module/test)/infrastructure/docker" infrastructure
  rm -rf "$dir/config"
  touch "$dir/.complete"
  echo "capi: built in $((SECONDS - started)) s" >&2
  # Of builds for other contents, what nobody has used for a month.
  find "$cache" -mindepth 2 -maxdepth 2 -name .complete -mtime +30 -printf '%h\0' | xargs -0r rm -rf
fi
touch -c "$dir/.complete" 2>/dev/null || true # somebody else's cache will do
echo "$dir"
