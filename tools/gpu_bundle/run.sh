#!/usr/bin/env bash
# run.sh [ARGUMENT ...]: lease.py, with this machine's Python; `run.sh --help` tells.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
command -v python3 >/dev/null || {
  echo "run.sh: python3 is not here; each program of $here/bin runs without it" >&2
  exit 2
}
exec python3 "$here/lease.py" "$@"
