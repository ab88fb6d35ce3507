#!/usr/bin/env bash
# Builds everything and runs all tests, ending with ctest's summary. Installs what is missing (scripts/setup.sh).
#
#   scripts/test.sh [--asan] [CTEST ARGUMENTS...]      e.g.  scripts/test.sh -L unit
#
#   --asan  the same for the AddressSanitizer + UBSan build: unit, conformance, sim and integration tests without torch
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
if [ "${1:-}" = --asan ]; then
  shift; preset=asan
  scripts/setup.sh --deps-only
  cmake --preset asan >/dev/null
  cmake --build --preset asan
  # What measures time is too slow with sanitizers to mean anything.
  set -- -L 'unit|conformance|sim|integration|fuzz' -LE timing "$@"
else
  scripts/setup.sh --tests
fi
# Tests that measure time run alone (RUN_SERIAL); the others share the cores.
exec ctest --preset "$preset" -j "$(nproc)" --no-tests=error "$@"
