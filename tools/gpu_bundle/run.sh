#!/usr/bin/env bash
# run.sh [OUT [STEP ...]]: checks and times heddle on this machine's GPUs; all steps, or those named. What each says
# is kept in OUT (./out) as soon as it has ended, with a line in summary.txt: passed, FAILED, or skipped and why.
# Ends with status 1 where a step failed, 2 where a step that was named does not exist, 0 where there is no GPU.
# run.sh --list names the steps. Each has a limit, ten minutes at most, and may be run alone.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")

# Device and operations first: what fails there need not be looked for elsewhere. A step: its name, seconds at most,
# program and arguments.
steps=(
  "device 120 bin/device_gpu_test"
  "ops 400 bin/ops_cuda_test"
  "own_products 120 env HEDDLE_CUBLASLT=none bin/ops_cuda_test --gtest_filter=LinearTest.*"
  "engine 400 bin/engine_test --gtest_filter=*GpuTest.*"
  "serve 300 python3 serve_check.py"
  "memory 300 python3 memory_check.py"
  "soak 400 python3 tests/soak/soak.py --gpu --minutes 5 --kill-every 15 --keep-log OUT/soak_server.txt"
  "memcheck 600 SANITIZER --tool memcheck --error-exitcode 9 bin/ops_cuda_test"
  "racecheck 600 SANITIZER --tool racecheck --error-exitcode 9 bin/ops_cuda_test --gtest_filter=*Attention*:*Linear*:*Sample*:*Norm*"
  "bench_device 200 bin/cuda_device"
  "bench_ops 200 bin/cuda_ops"
  "bench_linear 200 bin/cuda_linear"
  "bench_guests 200 bin/gpu_guests"
  "bench_loop 120 bin/gpu_loop --steps 200"
  "bench_8b 600 bin/gpu_model --shape llama-3-8b"
  "bench_14b 600 bin/gpu_model --shape qwen2.5-14b"
  "calibrate 400 bin/heddle calibrate calibrate.yaml --device gpu0 --model adder --out OUT/calibration"
)
names=$(printf '%s\n' "${steps[@]}" | cut -d ' ' -f 1)
if [ "${1:-}" = --list ]; then
  echo "$names"
  exit 0
fi
out=${1:-$here/out}
mkdir -p "$out"
out=$(readlink -f "$out")
shift || true
for name in "$@"; do
  grep -qx "$name" <<<"$names" || { echo "no step '$name'; there are:" $names; exit 2; }
done
cd "$here"
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export HEDDLE_SOURCE_DIR=$here HEDDLE_BINARY=$here/bin/heddle HEDDLE_CUDA_DRIVER=${HEDDLE_CUDA_DRIVER:-libcuda.so.1}

if [ "$HEDDLE_CUDA_DRIVER" = libcuda.so.1 ] && [ ! -e /dev/nvidiactl ]; then
  echo "skipped: there is no NVIDIA GPU here (no /dev/nvidiactl)"
  exit 0
fi
{
  echo "heddle $(cat version), $(date -u +%FT%TZ), $(uname -r), driver library $HEDDLE_CUDA_DRIVER"
  nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,pcie.link.gen.current,pcie.link.width.current \
    --format=csv 2>/dev/null
  nvidia-smi topo -m 2>/dev/null
} | tee "$out/machine.txt"

# The machine's own compute-sanitizer fits its driver; else the one in the bundle, if it starts here.
looked="" sanitizer=""
find_sanitizer() {
  local found
  [ "$HEDDLE_CUDA_DRIVER" = libcuda.so.1 ] || return
  for found in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer sanitizer/bin/compute-sanitizer; do
    [ -x "$found" ] || continue
    if timeout 60 "$found" --tool memcheck bin/device_gpu_test --gtest_filter=DeviceGpuTest.IsDescribed \
      >"$out/sanitizer.txt" 2>&1; then
      readlink -f "$found"
      return
    fi
  done
}

# Why a step cannot run here; nothing where it can.
reason_against() {
  local program=$1
  if [ "$program" = SANITIZER ]; then
    if [ "$HEDDLE_CUDA_DRIVER" != libcuda.so.1 ]; then
      echo "compute-sanitizer watches kernels of the machine's own driver, not of $HEDDLE_CUDA_DRIVER"
    elif [ -z "$sanitizer" ]; then
      echo "no compute-sanitizer that starts here (sanitizer.txt has what it said)"
    fi
  elif ! command -v "$program" >/dev/null; then
    echo "$program is not here"
  fi
}

# A line for a step, instead of what an earlier run said of it.
say() {
  touch "$out/summary.txt"
  sed -i "/^${1%%:*}: /d" "$out/summary.txt"
  echo "$1" | tee -a "$out/summary.txt"
}

# What a step has to tell beside its file.
show() {
  local name=$1 status=$2 file=$out/$1.txt
  case "$name" in
    bench_* | calibrate) cat "$file" ;;
    *)
      if [ "$status" = 0 ]; then
        tail -n 3 "$file"
        grep -E '^\[  SKIPPED|Skipped' "$file" | sort | uniq -c | head -n 5
      else
        grep -B 2 -A 6 -E 'Failure|Error|error|FAILED' "$file" | head -n 60
      fi
      ;;
  esac
}

failed=0
for step in "${steps[@]}"; do
  read -r name limit program arguments <<<"$step"
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
    continue
  fi
  if [ "$program" = SANITIZER ] && [ -z "$looked" ]; then
    looked=yes
    sanitizer=$(find_sanitizer)
  fi
  reason=$(reason_against "$program")
  if [ -n "$reason" ]; then
    say "$name: skipped, $reason"
    continue
  fi
  program=${program/SANITIZER/$sanitizer}
  arguments=${arguments//OUT/$out}
  began=$SECONDS
  # shellcheck disable=SC2086
  timeout --kill-after=10 "$limit" "$program" $arguments >"$out/$name.txt" 2>&1
  status=$?
  took=$((SECONDS - began))
  show "$name" $status
  if [ $status = 0 ]; then
    say "$name: passed in $took s"
  else
    [ $status = 124 ] && why="its limit of $limit s" || why="status $status"
    say "$name: FAILED with $why after $took s"
    failed=1
  fi
done
echo
cat "$out/summary.txt"
exit $failed
