#!/usr/bin/env bash
# Every C++ source is formatted as .clang-format says. To mend: git ls-files '*.h' '*.cc' | xargs clang-format -i
set -euo pipefail
cd "$(dirname "$0")/../.."
git ls-files '*.h' '*.cc' | xargs clang-format --dry-run --Werror
