#!/usr/bin/env bash
# Trains a small transformer on the King James Bible with four worker processes, every link between them emulated at
# 80 Mbit/s and 50 ms. Installs and builds what is missing first; a second call starts at once, in a new run directory.
#
#   scripts/quickstart.sh [ARGUMENTS of `stagecoach train`...]      e.g.  scripts/quickstart.sh --links 10mbit/150ms
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh

folder=build/quickstart
if [ ! -f "$folder/data/dataset.json" ]; then
  mkdir -p "$folder"
  # The public-domain text of the Debian package bible-kjv-text, unpacked by its reader.
  bible gen1:1-rev22:21 </dev/null >"$folder/kjv.txt.part"
  mv "$folder/kjv.txt.part" "$folder/kjv.txt"
  build/bin/stagecoach-model prepare "$folder/kjv.txt" --output "$folder/data" >&2
fi

number=1
while [ -e "runs/quickstart-$number" ]; do number=$((number + 1)); done
exec build/bin/stagecoach train --config examples/runs/quickstart.yaml --data "$folder/data" \
  --workers 4 --links 80mbit/50ms --run-dir "runs/quickstart-$number" "$@"
