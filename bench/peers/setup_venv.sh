#!/usr/bin/env bash
# Makes the virtual environment of the PyTorch peers (4.9 GB): the same torch as ours, with everything that `import torch` needs.
set -euo pipefail
venv=${1:-/opt/stagecoach/bench-venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check torch==2.11.0 numpy
echo "$venv/bin/python"
