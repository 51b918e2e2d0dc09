#!/usr/bin/env bash
# run.sh [ARGUMENT ...]: lease.py, with this machine's Python; `run.sh --help` tells.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || {
  echo "run.sh: there is no python3 of 3.9 or later here; each program of $here/bin runs without it" >&2
  exit 2
}
exec python3 "$here/lease.py" "$@"
