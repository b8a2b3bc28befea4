#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Run as `unshare --mount --net --uts --ipc sh house.sh FOLDER NAME ADDRESS`:
# makes the namespaces a node's, with what its programs write in FOLDER, then
# holds them until standard input ends.
set -eu
dir=$1 name=$2 address=$3

bind() {
  mkdir -p "$dir/$1" "$2"
  mount --bind "$dir/$1" "$2"
}
# Mounts of volumes reach containers that ask for it.
mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/lock /run/netns
bind lib/kubelet /var/lib/kubelet
bind lib/cni /var/lib/cni
bind log/pods /var/log/pods
bind log/containers /var/log/containers

# kubelet writes these of the whole machine: it finds them as it wants them.
mkdir "$dir/sys"
while read -r key value; do
  file=$dir/sys/$(echo "$key" | tr / _)
  echo "$value" >"$file"
  mount --bind "$file" "/proc/sys/$key"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END

# Names are answered by this file alone: a question to a name server would wait
# for one that is not reachable.
hostname "$name"
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" >"$dir/hosts"
mount --bind "$dir/hosts" /etc/hosts
: >"$dir/resolv.conf"
mount --bind "$dir/resolv.conf" "$(readlink -f /etc/resolv.conf)"

echo 1 >/proc/sys/net/ipv4/ip_forward
echo ready
exec cat
