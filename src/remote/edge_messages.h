#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "core/messages.h"
#include "remote/stream_messages.h"

/// What two agents say to each other over a link for a pipe (rpc::LinkUse::kPipes): the bytes that
/// a stage sends to the one behind it. Each edge has a link of its own, whose end is the edge's.
/// StreamBytes and StreamTaken, of stream 0, go both ways.
namespace heddle::remote {

/// The first, from the host of the stage before: which edge this is.
struct OpenEdge {
  core::GroupId group{};
  std::int64_t stage = 0;  ///< The one before.
};

/// The answer: the stage behind is there.
struct EdgeOpened {};

using ToEdge = std::variant<OpenEdge, StreamBytes, StreamTaken>;
using FromEdge = std::variant<EdgeOpened, StreamBytes, StreamTaken>;

[[nodiscard]] std::string encode(const ToEdge& message);
[[nodiscard]] std::string encode(const FromEdge& message);

/// kCorrupt, with what was wrong in which field. Trusts nothing.
Result<ToEdge> decode_to_edge(std::string_view bytes);
Result<FromEdge> decode_from_edge(std::string_view bytes);

}  // namespace heddle::remote
