#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "spec/json.h"

/// Whose the pages of a device or of the host are, as characters of a terminal.
namespace heddle::cli {

/// How a model is shown: a letter that goes on from 'a' to 'z' and begins again, and a colour.
struct ModelMark {
  char letter = 'a';
  int colour = 0;  ///< Of a terminal's 256.
};

/// Marks of models by their ids, in the order of the server's list.
using ModelMarks = std::map<std::string, ModelMark>;
[[nodiscard]] ModelMarks model_marks(const std::vector<std::string>& models);

/// Neighbouring pages of one owner and kind.
struct PoolPart {
  std::string model{};  ///< Empty: they are no model's alone.
  char sign = '#';      ///< For what is no model's; of models 'W' weights, 'K' KV.
  double pages = 0;
};

/// The parts of a pool as /api/devices tells it, those of models first; what is left is free.
/// Guests (KV of a model on another device) are KV. Without a part: none is held.
[[nodiscard]] std::vector<PoolPart> pool_parts(const spec::Json& pool);

/// One character for each of `columns` shares of the pool's pages: a model's letter, a capital for
/// weights and a small one for KV; '=' cached prefixes, 'i' images, '#' all else that is held, '.'
/// free pages. Edges are rounded, so that parts next to each other take what they take together.
/// With `colours` models stand on their colour.
[[nodiscard]] std::string draw_pool(const spec::Json& pool,
                                    const ModelMarks& marks,
                                    std::size_t columns,
                                    bool colours);

}  // namespace heddle::cli
