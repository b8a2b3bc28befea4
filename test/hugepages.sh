#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   test/hugepages.sh COMMAND...   runs COMMAND with transparent huge pages for all memory
#
# Debian's kernel gives all memory huge pages where it can; some machines' kernels
# only give them to programs that ask, and Go's do not. Where a page fault is dear,
# as in many VMs, compilers and guests then take half as long again. The setting is
# put back afterwards. OUTRIGGER_KEEP_HUGEPAGES=1 leaves it as it is.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: test/hugepages.sh COMMAND..." >&2; exit 2; }
setting=/sys/kernel/mm/transparent_hugepage/enabled
was=$(grep -o '\[.*\]' "$setting" 2>/dev/null | tr -d '[]') || was=
if [ "$was" != madvise ] || [ -n "${OUTRIGGER_KEEP_HUGEPAGES:-}" ] || ! echo always 2>/dev/null >"$setting"; then
  exec "$@"
fi
trap 'echo $was >$setting' EXIT
trap : INT TERM # the command gets them too
echo "hugepages: $setting is \"always\" while this runs, and \"$was\" again after it"
"$@"
