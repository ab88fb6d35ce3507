#!/usr/bin/env bash
# Makes the virtual environment of the hivemind peer, apart from the one of the PyTorch peers: hivemind pins packages of its own.
set -euo pipefail
venv=${1:-/opt/stagecoach/hivemind-venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check torch==2.11.0 'numpy<2'
"$venv/bin/pip" install -q --disable-pip-version-check --only-binary hivemind hivemind==1.1.12
echo "$venv/bin/python"
