#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Kubernetes programs of test/kube and the CSI sidecars of test/sidecars, once
# for each content of those folders, and prints the folder with them: kubectl, and etcd,
# kube-apiserver, kubelet and so on, which are links to one file, and csi-provisioner and so on.
# Whoever asks while another builds waits for it.
set -euo pipefail
cd "$(dirname "$0")/kube"

version=$(awk '$1 == "k8s.io/kubernetes" {print $2; exit}' go.mod)
key=$(cat ../kube.sh go.mod go.sum ./*.go kubectl/*.go ../sidecars/go.mod ../sidecars/go.sum | sha256sum | cut -c1-12)
cache=${OUTRIGGER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/outrigger}/kube
dir=$cache/$version-$key
programs=(controlplane etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubelet)

if [ ! -e "$dir/.complete" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/.lock"
  flock -n 9 || { echo "kube: waiting for another process that builds Kubernetes" >&2; flock 9; }
fi
if [ ! -e "$dir/.complete" ]; then
  echo "kube: building Kubernetes $version into $dir" >&2
  echo "kube: the first time this takes about seven minutes of processor time, 3 GB of Go's build cache and the download of 600 MB" >&2
  started=$SECONDS
  flags=""
  minor=${version#v1.}
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*} -X $package.gitTreeState=clean"
  done
  rm -rf "$dir"
  mkdir -p "$dir"
  # The flags of the Makefile: with others all packages would be compiled again.
  export CGO_ENABLED=0 GOGC=${GOGC:-400} GOFLAGS="-mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false"
  {
    go build -v -ldflags "-s -w$flags" -o "$dir/" . ./kubectl
    cd ../sidecars
    go build -v -ldflags "-s -w" -o "$dir/" tool
    snapshotter=github.com/kubernetes-csi/external-snapshotter
    cp "$(go list -m -f '{{.Dir}}' $snapshotter/client/v8)"/config/crd/snapshot.storage.k8s.io_*.yaml \
      "$(go list -m -f '{{.Dir}}' $snapshotter/v8)/deploy/kubernetes/snapshot-controller/rbac-snapshot-controller.yaml" "$dir/"
  } 2>&1 |
    awk '/^[a-z0-9.]+\/[^ ]*$|^[a-z]+$/ { if (++n % 200 == 0) { print "kube: " n " packages"; fflush() } next } !/^go: downloading/' >&2
  for p in "${programs[@]}"; do ln -sf kube "$dir/$p"; done
  touch "$dir/.complete"
  echo "kube: built in $((SECONDS - started)) s" >&2
  # Of builds for other contents, what nobody has used for a month.
  find "$cache" -mindepth 2 -maxdepth 2 -name .complete -mtime +30 -printf '%h\0' | xargs -0r rm -rf
fi
touch -c "$dir/.complete" 2>/dev/null || true # somebody else's cache will do
echo "$dir"
