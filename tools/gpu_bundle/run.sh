#!/usr/bin/env bash
# run.sh [OUT [STEP ...]]: checks and times heddle on this machine's GPU; all steps, or those named. What each says
# is kept in OUT (./out). Ends with a line for each step; status 1 where one failed, 0 where there is no GPU.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
out=$(readlink -f "${1:-$here/out}")
shift || true
mkdir -p "$out"
cd "$here"
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export HEDDLE_SOURCE_DIR=$here HEDDLE_CUDA_DRIVER=${HEDDLE_CUDA_DRIVER:-libcuda.so.1}

if [ "$HEDDLE_CUDA_DRIVER" = libcuda.so.1 ] && [ ! -e /dev/nvidiactl ]; then
  echo "skipped: there is no NVIDIA GPU here (no /dev/nvidiactl)"
  exit 0
fi
{
  echo "heddle $(cat version), $(date -u +%FT%TZ), $(uname -r)"
  nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,pcie.link.gen.current,pcie.link.width.current \
    --format=csv 2>/dev/null
} | tee "$out/machine.txt"

# Tests print much: the count and what failed is enough here, all is in the file. Steps: name, seconds at most,
# program and arguments.
steps=(
  "device 120 bin/device_gpu_test"
  "ops 400 bin/ops_cuda_test"
  "own_products 120 env HEDDLE_CUBLASLT=none bin/ops_cuda_test --gtest_filter=LinearTest.*"
  "engine 400 bin/engine_test --gtest_filter=*GpuTest.*"
  "serve 300 python3 serve_check.py"
  "memcheck 500 compute-sanitizer --tool memcheck --error-exitcode 9 bin/ops_cuda_test"
  "racecheck 500 compute-sanitizer --tool racecheck --error-exitcode 9 bin/ops_cuda_test --gtest_filter=*Attention*:*Linear*:*Sample*"
  "bench_device 200 bin/cuda_device"
  "bench_ops 200 bin/cuda_ops"
  "bench_linear 200 bin/cuda_linear"
  "bench_8b 400 bin/gpu_model --shape llama-3-8b"
  "bench_14b 400 bin/gpu_model --shape qwen2.5-14b"
)
summary=()
failed=0
for step in "${steps[@]}"; do
  read -r name limit program arguments <<<"$step"
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
    continue
  fi
  if ! command -v "$program" >/dev/null; then
    summary+=("$name: skipped, $program is not here")
    continue
  fi
  began=$SECONDS
  # shellcheck disable=SC2086
  timeout "$limit" "$program" $arguments >"$out/$name.txt" 2>&1
  status=$?
  took=$((SECONDS - began))
  if [ $status = 0 ]; then
    summary+=("$name: passed in $took s")
  else
    summary+=("$name: FAILED with status $status after $took s")
    failed=1
  fi
  case "$name" in
    bench_*) cat "$out/$name.txt" ;;
    *) [ $status = 0 ] && tail -n 3 "$out/$name.txt" || grep -B 2 -A 6 -E 'Failure|Error|error|FAILED' "$out/$name.txt" | head -n 60 ;;
  esac
done
echo
printf '%s\n' "${summary[@]}" | tee "$out/summary.txt"
exit $failed
