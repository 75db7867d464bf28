#!/usr/bin/env bash
# Checks what only an NVIDIA GPU can show, in at most 8 minutes: tests/gpu/run.sh [CHECK...]
#
# Each check prints one line: passed, FAILED, or not here and why. Exit: 0 all that are here passed, 1 one failed, 3 there
# is no GPU, so that nothing was checked. PYTHON names the interpreter (by default .venv/bin/python, else python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ -z "${PYTHON:-}" ]; then
    PYTHON=python3
    if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; fi
fi
export PYTHONPATH="$PWD/runtime${PYTHONPATH:+:$PYTHONPATH}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"
unset ACCELERATE_USE_CPU
exec timeout --kill-after=10 480 "$PYTHON" tests/gpu/run.py "$@"
