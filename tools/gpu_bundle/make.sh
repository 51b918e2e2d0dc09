#!/usr/bin/env bash
# make.sh BUILD OUT: gathers what checks and times heddle on a machine with a GPU into the archive OUT: built programs
# with the libraries they need, the demo models and the goldens. It wants nothing there but the driver and Python 3;
# what the machine has besides (cuBLASLt, torch, nvcc, compute-sanitizer, ncu) is used.
# make.sh BUILD --stage FOLDER: makes FOLDER/heddle-gpu, unpacked.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
build=$1 out=$2

if [ "$out" = --stage ]; then
  stage=$3
  mkdir -p "$stage"
else
  stage=$(mktemp -d)
  trap 'rm -rf "$stage"' EXIT
fi
root=$stage/heddle-gpu
mkdir -p "$root"/{bin,lib,images,bench,tools,tests/integration,tests/soak}

programs=(heddle src/engine/engine_test src/ops/ops_cuda_test tests/gpu/device_gpu_test bench/cuda_device bench/cuda_ops bench/cuda_linear bench/gpu_exchange bench/gpu_guests bench/gpu_loop bench/gpu_model)
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
cp bench/gpu_transformers.py bench/gpu_ceilings.py "$root/bench/"
cp tests/soak/*.py "$root/tests/soak/"
cp tools/random_model.py "$root/tools/"
cp tools/gpu_bundle/{run.sh,images.sh,*.py} "$root/"

# Kernels, as HEDDLE_CUDA_IMAGES takes them, and what they are made of (images.sh).
find "$build/src/ops" "$build/bench" "$build/tests/gpu" -name '*.fatbin' 2>/dev/null | while read -r image; do
  name=$(basename "$image")
  cp "$image" "$root/images/$(sed -E 's/^(heddle_ops|gpu_model|cuda_device|device_gpu_test)_//' <<<"$name")"
done
mkdir -p "$root/kernels/src/ops/cuda" "$root/kernels/tests/cuda_emulator" "$root/kernels/bench"
cp -r src/ops/cuda/kernels "$root/kernels/src/ops/cuda/"
cp src/ops/*row.h "$root/kernels/src/ops/"
cp tests/cuda_emulator/probe_kernels.* "$root/kernels/tests/cuda_emulator/"
cp bench/read_all.cu bench/read_all_params.h "$root/kernels/bench/"

# compute-sanitizer, where one was fetched (dev: sanitizer_setup): the program and what it injects.
if [ -x build/sanitizer/nvidia/cu13/bin/compute-sanitizer ]; then
  mkdir -p "$root/sanitizer"
  cp -r build/sanitizer/nvidia/cu13/bin "$root/sanitizer/bin"
  cp build/sanitizer/nvidia/cu13/lib/lib{TreeLauncher,Interceptor}*.so "$root/sanitizer/bin/"
fi
git describe --always --dirty >"$root/version" 2>/dev/null || echo unknown >"$root/version"
[ "$out" = --stage ] && exit 0
# The programs are mostly the same code: with a dictionary that is larger than all of them together each is packed once.
tar -C "$stage" --sort=name -c heddle-gpu | xz --lzma2=preset=9,dict=256MiB >"$out"
