#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target for the time given, one after the other.
set -euo pipefail
time=${1:?usage: test/fuzz.sh TIME}
cd "$(dirname "$0")/.."
grep -rHo --include='*_test.go' 'func Fuzz[A-Za-z0-9_]*' . | sed 's/func //' | sort | while IFS=: read -r file name; do
  echo "fuzz: $name in $(dirname "$file") for $time"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 100x "$(dirname "$file")"
done
