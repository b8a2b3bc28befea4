#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   test/kernel.sh COMMAND...   runs COMMAND with two settings of the kernel that tests want
#
# Transparent huge pages for all memory: Debian's kernel gives them where it can; some
# machines' kernels only give them to programs that ask, and Go's do not. Where a page
# fault is dear, as in many VMs, compilers and guests then take half as long again.
# OUTRIGGER_KEEP_HUGEPAGES=1 leaves them as they are.
#
# Inotify instances: kubelets, engines and managers of packages that are tested at once
# have more than 128, the kernel's default for all processes of a user together.
#
# Both are put back afterwards. What may not be written stays as it is.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: test/kernel.sh COMMAND..." >&2; exit 2; }
pages=/sys/kernel/mm/transparent_hugepage/enabled
instances=/proc/sys/fs/inotify/max_user_instances
put_back=
# change FILE WAS VALUE writes a setting and notes how to undo that.
change() {
  echo "$3" 2>/dev/null >"$1" || return 0
  put_back+="echo $2 >$1;"
  echo "kernel: $1 is \"$3\" while this runs, and \"$2\" again after it"
}
trap 'eval "$put_back"' EXIT
trap : INT TERM # the command gets them too
was=$(grep -o '\[.*\]' "$pages" 2>/dev/null | tr -d '[]') || was=
if [ "$was" = madvise ] && [ -z "${OUTRIGGER_KEEP_HUGEPAGES:-}" ]; then change "$pages" "$was" always; fi
was=$(cat "$instances" 2>/dev/null) || was=1024
if [ "$was" -lt 1024 ]; then change "$instances" "$was" 1024; fi
"$@"
