#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   test/packages.sh              what gotestsum runs for test/run.sh, which sets the variables:
#                                 OUTRIGGER_TEST_PURE, then _OTHERS, are packages; _ACTIONS is a file
#   test/packages.sh FLAGS PKG    a test again that failed
#
# The results of the first may come from Go's cache, which it has none for where
# tests are shuffled or started by -exec. Tests collect garbage as they would
# anywhere, unlike the compilers beside them.
# Four packages at once, on two processors: each waits a third to two thirds of the time.
# Beside them come those whose results are mostly in the cache, one at a time; what they
# say comes last and in one piece, since lines of two writers would get mixed up.
set -euo pipefail
tests=(go test -json -p 4 -tags integration,grpcnotrace -vet=off -ldflags=-s $OUTRIGGER_TEST_FLAGS)
measured() {
  "${tests[@]}" -count=1 -shuffle=on -exec "env --unset=GOGC $OUTRIGGER_TIMES run $OUTRIGGER_PROCESSOR" "$@"
}

if [ $# -gt 0 ]; then
  measured "$@"
  exit
fi
status=0
results=$(mktemp)
pure=
# What runs in the background does not see ^C.
trap 'rm -f "$results"; [ -z "$pure" ] || kill "$pure" 2>/dev/null || true' EXIT
if [ -n "$OUTRIGGER_TEST_PURE" ]; then
  (unset GOGC && exec "${tests[@]}" -p 1 $OUTRIGGER_TEST_PURE) >"$results" &
  pure=$!
fi
[ -z "$OUTRIGGER_TEST_OTHERS" ] || measured -debug-actiongraph="$OUTRIGGER_TEST_ACTIONS" $OUTRIGGER_TEST_OTHERS || status=1
[ -z "$OUTRIGGER_TEST_PURE" ] || wait "$pure" || status=1
cat "$results"
exit $status
