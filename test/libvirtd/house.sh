#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Run as `unshare --mount sh house.sh FOLDER POOL_SIZE`: gives the mount
# namespace libvirt's folders inside FOLDER, then holds it until standard input
# ends.
set -eu
dir=$1 pool_size=$2

bind() {
  mkdir -p "$dir/$1" "$2"
  mount --bind "$dir/$1" "$2"
}
# sshd wants a folder, and expects it in /run.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/lock /run/sshd
bind run /run/libvirt
bind lib /var/lib/libvirt
bind cache /var/cache/libvirt
bind log /var/log/libvirt
bind etc /etc/libvirt

# Devices without kvm: libvirt offers KVM wherever the node exists and asks QEMU
# anew at each start of a domain if it then does not work.
dev=$dir/dev
mkdir -p "$dev"
mount -t tmpfs -o mode=755 tmpfs "$dev"
mkdir "$dev/pts" "$dev/shm" "$dev/net"
for node in null zero full random urandom tty net/tun; do
  : >"$dev/$node"
  mount --bind "/dev/$node" "$dev/$node"
done
mount --rbind /dev/pts "$dev/pts"
ln -s pts/ptmx "$dev/ptmx"
ln -s /proc/self/fd "$dev/fd"
mount --rbind "$dev" /dev

# The interfaces of this network namespace, and no cgroups: what libvirt would
# make there outlives the test.
umount -l /sys
mount -t sysfs sysfs /sys

mkdir -p "$dir/pool"
if [ "$pool_size" != 0 ]; then
  mount -t tmpfs -o "size=$pool_size" tmpfs "$dir/pool"
fi
echo ready
exec cat
