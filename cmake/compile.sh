#!/usr/bin/env bash
# compile.sh ROOT COMPILER ARGUMENT ...: compiles as told, in a build folder of the checkout ROOT, by way of ccache.
#
# ccache then finds what any checkout of this machine compiled, wherever it lies. To this end paths below ROOT become
# relative, and of a precompiled header ccache asks what its headers say (in a file .sum beside it) instead of the bytes
# that clang made of them, which name the checkout.
set -euo pipefail
root=$1
shift
up=$(realpath --relative-to=. "$root")

arguments=()
precompiled='' # The precompiled header that this makes.
for argument; do
  case $argument in
    "$root"/*) argument=$up${argument#"$root"} ;;
    -I"$root"/*) argument=-I$up${argument#-I"$root"} ;;
    -emit-pch) precompiled=yes ;;
  esac
  arguments+=("$argument")
done

if [ -n "$precompiled" ]; then
  "${arguments[@]}"
  text=()
  for ((i = 0; i < ${#arguments[@]}; i++)); do
    case ${arguments[i]} in
      -o) precompiled=${arguments[++i]} ;;
      -MD) ;;
      -MT | -MF) ((++i)) ;;
      -Xclang) [ "${arguments[i + 1]}" = -emit-pch ] && ((++i)) || text+=(-Xclang) ;;
      *) text+=("${arguments[i]}") ;;
    esac
  done
  "${text[@]}" -E -dD -P -o - | sha256sum >"$precompiled.sum"
  exit
fi

# A user of a precompiled header includes its headers by it; CMake has it include them by name as well.
kept=()
for ((i = 0; i < ${#arguments[@]}; i++)); do
  if [[ ${arguments[i]} = -Xclang && ${arguments[i + 1]:-} = -include && ${arguments[i + 3]:-} = */cmake_pch.hxx ]]; then
    ((i += 3))
  else
    kept+=("${arguments[i]}")
  fi
done
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 CCACHE_SLOPPINESS=pch_defines,time_macros
exec ccache "${kept[@]}"
