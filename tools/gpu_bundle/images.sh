#!/usr/bin/env bash
# images.sh FOLDER [NAME ...]: compiles the kernels of kernels/ (NAME.cu; all when none is named) with this machine's nvcc
# and for its GPU into FOLDER, as HEDDLE_CUDA_IMAGES takes them. What is not compiled is copied from images/, since a
# folder has to have all. lease.py sweep measures every folder images-* beside it. From 9.0 on kernels may have
# instructions of that one GPU (sm_90a: wgmma, setmaxnreg).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
out=${1:?"images.sh FOLDER [NAME ...]"}
shift
nvcc=$(command -v nvcc || ls -d /usr/local/cuda*/bin/nvcc 2>/dev/null | tail -n 1 || true)
[ -n "$nvcc" ] || { echo "images.sh: nvcc is neither in PATH nor in /usr/local/cuda" >&2; exit 1; }
architecture=${HEDDLE_CUDA_ARCHITECTURE:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)}
[ "$architecture" -lt 90 ] 2>/dev/null || [[ "$architecture" = *[a-z] ]] || architecture+=a
mkdir -p "$out"
for image in "$here"/images/*.fatbin; do
  name=$(basename "$image" .fatbin)
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
    cp "$image" "$out/"
    continue
  fi
  source=$(find "$here/kernels" -name "$name.cu")
  echo "$name for sm_$architecture"
  "$nvcc" -std=c++20 --expt-relaxed-constexpr -O3 -fatbin -arch="sm_$architecture" \
    -I "$here/kernels/src" -I "$here/kernels/tests" -I "$here/kernels" -o "$out/$name.fatbin" "$source"
done
