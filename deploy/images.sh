#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes container images as OCI layout folders, with nothing but Go. Programs
# are static, the base is nothing but certificates, and equal sources give
# equal bytes.
#
#   deploy/images.sh IMAGE...   cloud-api-adaptor agent-relay peerpod-ctrl peerpods-webhook node-installer provider-qemu
#                       capi-manager cluster-loadbalancer cloud-controller-manager
#                       ccm-operator outrigger-csi
#
# Environment: OUT (bin/images), ARCH (this machine's; amd64,arm64 for both),
# PREFIX (localhost/outrigger), TAG (latest), VERSION, COMMIT, TAGS, CA_CERTIFICATES,
# PROGRAMS (a folder with the programs of one ARCH, such as bin: nothing is compiled).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-bin/images} arch=${ARCH:-$(go env GOARCH)} prefix=${PREFIX:-localhost/outrigger} tag=${TAG:-latest}
ca=${CA_CERTIFICATES:-/etc/ssl/certs/ca-certificates.crt}
module=github.com/outrigger/outrigger
ldflags="-s -w -X $module/internal/version.Version=${VERSION:-dev} -X $module/internal/version.Commit=${COMMIT:-}"

[ $# -gt 0 ] || { echo "images: name at least one image; see the head of $0" >&2; exit 2; }
[ -r "$ca" ] || { echo "images: no $ca: install ca-certificates, or set CA_CERTIFICATES to a PEM file of those to trust" >&2; exit 1; }

[[ -z "${PROGRAMS:-}" || $arch != *,* ]] || { echo "images: PROGRAMS=$PROGRAMS are for one architecture, and ARCH is $arch" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
programs=${PROGRAMS:-"$work/{arch}"} packer=${PROGRAMS:-$work}/oci-image

compile() { # compile COMMAND...: static, for each architecture
  local a tags="grpcnotrace ${TAGS:-}"
  [ -z "${PROGRAMS:-}" ] || return 0
  for a in ${arch//,/ }; do
    mkdir -p "$work/$a"
    CGO_ENABLED=0 GOOS=linux GOARCH=$a go build -trimpath -buildvcs=false -tags "${tags// /,}" -ldflags "$ldflags" \
      -o "$work/$a/" "${@/#/./cmd/}"
  done
  go build -o "$packer" ./cmd/oci-image
}

pack() { # pack IMAGE [FLAG]... -- [/PATH=FILE]...
  local image=$1 flags=()
  shift
  while [ "$1" != -- ]; do flags+=("$1"); shift; done
  shift
  "$packer" -output "$out/$image" -tag "$prefix/$image:$tag" -arch "$arch" \
    -entrypoint "/usr/local/bin/$image" ${flags[@]+"${flags[@]}"} \
    "/usr/local/bin/$image=$programs/$image" /etc/ssl/certs/ca-certificates.crt="$ca" "$@"
}

# QEMU comes from Debian's packages qemu-system-x86, seabios and e2fsprogs, TPMs of VMs from swtpm and swtpm-tools. Its
# firmware is found by path, its accelerators are loaded by name.
pack_qemu() {
  local share=/usr/share/qemu lib files=() file
  lib=/usr/lib/$(uname -m)-linux-gnu/qemu
  [ "$arch" = amd64 ] || { echo "images: provider-qemu is for amd64 only, not $arch" >&2; exit 1; }
  for file in /usr/bin/qemu-system-x86_64 /usr/bin/qemu-img /usr/bin/swtpm{,_setup,_localca,_cert} "$lib/accel-tcg-x86_64.so" "$(command -v mke2fs || echo /usr/sbin/mke2fs)" /etc/mke2fs.conf \
    $share/{kvmvapic,linuxboot,linuxboot_dma,multiboot,multiboot_dma,pvh}.bin \
    /usr/share/seabios/bios-256k.bin /usr/share/OVMF/OVMF_CODE_4M.fd /usr/share/OVMF/OVMF_VARS_4M.fd; do
    [ -e "$file" ] || { echo "images: no $file: run \`make setup\`" >&2; exit 1; }
    files+=("$file=$file")
  done
  pack provider-qemu -libraries -- "${files[@]}" "/usr/local/bin/podvm=$podvm"
}

# What formats, checks, grows and mounts file systems of nodes comes from Debian's packages e2fsprogs, mount and util-linux.
pack_csi() {
  local files=() program
  [ "$arch" = "$(go env GOHOSTARCH)" ] || { echo "images: outrigger-csi has programs of this machine and is for $(go env GOHOSTARCH) only, not $arch" >&2; exit 1; }
  for program in mount umount blkid e2fsck mke2fs resize2fs; do
    files+=("/usr/bin/$program=$(readlink -f "$(PATH=$PATH:/usr/sbin:/sbin command -v "$program" || echo "/usr/sbin/$program")")")
  done
  for program in "${files[@]}"; do
    [ -e "${program#*=}" ] || { echo "images: no ${program#*=}: run \`make setup\`" >&2; exit 1; }
  done
  pack outrigger-csi -libraries -- "${files[@]}" /etc/mke2fs.conf=/etc/mke2fs.conf
}

commands=()
for image in "$@"; do
  case $image in
    cloud-api-adaptor | agent-relay | capi-manager | cluster-loadbalancer | cloud-controller-manager | ccm-operator) commands+=("$image") ;;
    peerpod-ctrl | peerpods-webhook) commands+=("$image") ;;
    outrigger-csi) commands+=(outrigger-csi) ;;
    node-installer) commands+=(node-installer containerd-shim-outrigger-v2) ;;
    provider-qemu)
      podvm=${OUTRIGGER_PODVM_DIR:-bin/podvm}
      [ -e "$podvm/initrd.cpio" ] || { echo "images: no pod VM image in $podvm: run \`make podvm\`" >&2; exit 1; }
      commands+=(provider-qemu) ;;
    *) echo "images: there is no image $image" >&2; exit 2 ;;
  esac
done
compile "${commands[@]}"
for image in "$@"; do
  if [[ $image == peerpod* ]]; then
    pack "$image" -user 65532:65532 --
  elif [ "$image" = cloud-api-adaptor ]; then
    # What the DaemonSet of Confidential Containers' adaptor starts, and the relay, which that one does not have.
    pack "$image" -link /usr/local/bin/entrypoint.sh=cloud-api-adaptor -link /usr/local/bin/agent-relay=cloud-api-adaptor --
  elif [ "$image" = node-installer ]; then
    pack node-installer -- "/usr/local/bin/containerd-shim-outrigger-v2=$programs/containerd-shim-outrigger-v2"
  elif [ "$image" = provider-qemu ]; then
    pack_qemu
  elif [ "$image" = outrigger-csi ]; then
    pack_csi
  else
    pack "$image" --
  fi
done
