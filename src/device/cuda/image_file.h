#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace heddle::device {

/// The folder that the environment's HEDDLE_CUDA_IMAGES names: kernels come from its files then,
/// and not from the program, so that they can be changed without building it. Nothing where it is
/// not set, or empty.
[[nodiscard]] std::optional<std::string> image_folder();

/// Where that folder has the part of that name (ModuleImage::names).
[[nodiscard]] std::string image_file(const std::string& folder, const std::string& part);

/// A fat binary (`nvcc -fatbin`), whole. kNotFound, or as File has it, where it cannot be read;
/// kCorrupt where it is none, or is cut short: a driver would read on behind its end.
[[nodiscard]] Result<std::vector<std::byte>> read_image(const std::string& path);

}  // namespace heddle::device
