#include "ops/cuda/blas_places.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <system_error>

namespace heddle::ops::cuda {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it.
  return value == nullptr ? "" : value;
}

/// The folders of packages of an installation, newest Python first.
std::vector<fs::path> packages_below(const fs::path& prefix) {
  std::vector<fs::path> pythons;
  std::error_code none;
  for (fs::directory_iterator it(prefix / "lib", none), end; !none && it != end;
       it.increment(none)) {
    if (it->path().filename().string().starts_with("python3")) {
      pythons.push_back(it->path());
    }
  }
  std::ranges::sort(pythons, std::greater<>());
  std::vector<fs::path> packages;
  for (const fs::path& python : pythons) {
    packages.push_back(python / "site-packages");
    packages.push_back(python / "dist-packages");
  }
  return packages;
}

}  // namespace

PythonPlaces PythonPlaces::of_environment() {
  PythonPlaces places;
  std::istringstream paths(variable("PYTHONPATH"));
  for (std::string path; std::getline(paths, path, ':');) {
    if (!path.empty()) {
      places.packages.emplace_back(path);
    }
  }
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string prefix = variable(name); !prefix.empty()) {
      places.prefixes.emplace_back(prefix);
    }
  }
  if (const std::string home = variable("HOME"); !home.empty()) {
    places.prefixes.push_back(fs::path(home) / ".local");
  }
  places.prefixes.emplace_back("/usr/local");
  places.prefixes.emplace_back("/usr");
  return places;
}

std::vector<std::string> blas_in_python(const PythonPlaces& python) {
  std::vector<fs::path> packages = python.packages;
  for (const fs::path& prefix : python.prefixes) {
    const std::vector<fs::path> below = packages_below(prefix);
    packages.insert(packages.end(), below.begin(), below.end());
  }
  std::vector<std::string> found;
  for (const std::string major : {"13", "12"}) {
    for (const fs::path& folder : packages) {
      for (const std::string& part : {"cu" + major, std::string("cublas")}) {
        const fs::path library = folder / "nvidia" / part / "lib" / ("libcublasLt.so." + major);
        std::error_code none;
        if (fs::exists(library, none)) {
          found.push_back(library.string());
        }
      }
    }
  }
  return found;
}

}  // namespace heddle::ops::cuda
