#!/usr/bin/env bash
# clang-tidy over the pure decisions (every domain folder), where a false branch would change results.
#
#   tidy_check.sh BUILD_FOLDER [FILES...]      other files by hand; those that see torch or gRPC take about 20 s each
set -euo pipefail
build=$(cd "$1" && pwd); shift
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || mapfile -t files < <(git ls-files '*/domain/*.cc' 'common/*.cc' | grep -v '^common/[a-z_]*/')
printf '%s\n' "${@:-${files[@]}}" | xargs -P "$(nproc)" -n 3 clang-tidy -p "$build" --quiet
