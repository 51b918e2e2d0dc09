#!/usr/bin/env bash
# make.sh BUILD OUT: gathers what checks and times heddle on a machine with a GPU into the archive OUT: built
# programs with the libraries they need, the demo models and the goldens. It wants nothing there but the
# driver; what the machine has besides (cuBLASLt, compute-sanitizer, Python) is used.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
build=$1 out=$2

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/heddle-gpu
mkdir -p "$root"/{bin,lib,tests/integration}

programs=(heddle src/engine/engine_test src/ops/ops_cuda_test tests/gpu/device_gpu_test bench/cuda_device bench/cuda_ops bench/cuda_linear bench/gpu_guests bench/gpu_loop bench/gpu_model)
for program in "${programs[@]}"; do
  [ -x "$build/$program" ] || continue
  llvm-strip-19 -o "$root/bin/$(basename "$program")" "$build/$program"
  # Of libraries all but the C library's own, which must be the machine's.
  ldd "$build/$program" | awk '$3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|ld-linux[^/]*)\.so' || true
done | sort -u | while read -r library; do
  cp -L "$library" "$root/lib/"
done

cp -r models "$root/models"
cp -r tests/golden "$root/tests/golden"
cp tests/integration/server.py "$root/tests/integration/"
mkdir "$root/bench" "$root/tests/soak"
cp bench/gpu_transformers.py "$root/bench/"
cp tests/soak/*.py "$root/tests/soak/"
cp tools/gpu_bundle/{run.sh,serve_check.py,memory_check.py,calibrate.yaml} "$root/"
# compute-sanitizer, where one was fetched (dev: sanitizer_setup): the program and what it injects.
if [ -x build/sanitizer/nvidia/cu13/bin/compute-sanitizer ]; then
  mkdir -p "$root/sanitizer"
  cp -r build/sanitizer/nvidia/cu13/bin "$root/sanitizer/bin"
  cp build/sanitizer/nvidia/cu13/lib/lib{TreeLauncher,Interceptor}*.so "$root/sanitizer/bin/"
fi
git describe --always --dirty >"$root/version" 2>/dev/null || echo unknown >"$root/version"
XZ_OPT=-T0 tar -C "$stage" -cJf "$out" heddle-gpu
