#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heddle::ops::cuda {

/// Of a machine, where pip may have put libraries of NVIDIA's. Empty: there is none.
struct PythonPlaces {
  /// Of installations: lib/python3.*/site-packages and dist-packages below are looked into. In
  /// order.
  std::vector<std::filesystem::path> prefixes{};
  /// Folders of packages themselves, which come first.
  std::vector<std::filesystem::path> packages{};

  /// By the environment: PYTHONPATH; VIRTUAL_ENV, CONDA_PREFIX, $HOME/.local, /usr/local and /usr.
  static PythonPlaces of_environment();
};

/// The cuBLASLt libraries that are there, newest major version first, then in the order of
/// `python`: nvidia/cu13/lib and nvidia/cu12/lib, or nvidia/cublas/lib, of each folder of packages.
[[nodiscard]] std::vector<std::string> blas_in_python(const PythonPlaces& python);

}  // namespace heddle::ops::cuda
