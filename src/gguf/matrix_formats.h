#pragma once

#include <cstdint>
#include <vector>

#include "gguf/blocks.h"
#include "gguf/gguf_file.h"
#include "spec/dtype.h"

namespace heddle::gguf {

/// The type of blocks as images have it (spec/block_panels.h); kBf16 for what images have as plain
/// numbers only.
[[nodiscard]] spec::DType matrix_format(BlockType type);

/// ModelSpec::formats of a model of so many layers; empty where all are plain. A tensor that is
/// missing is somebody else's to complain of.
/// @param encoder  Its table of words is looked up beside others, as plain numbers.
[[nodiscard]] std::vector<spec::DType> matrix_formats(const GgufFile& file,
                                                      std::int64_t layers,
                                                      bool encoder);

}  // namespace heddle::gguf
