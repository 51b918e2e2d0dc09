#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "engine/kv_piece.h"
#include "engine/pipe_batch.h"
#include "rpc/messages.h"

/// What goes from stage to stage of a pipeline, as the payload of a frame: how long the message is
/// (32 bits, little endian), the message (rpc::ToStage), and of a batch its rows, of a piece its
/// KV.
namespace heddle::worker {

using StageMessage = std::variant<engine::PipeBatch, rpc::PipeFollower, engine::KvPiece>;

/// The most bytes of a payload: rows of a step of 4096 tokens, 16384 wide.
inline constexpr std::size_t kStagePayloadMax = (std::size_t{256} << 20U) + (std::size_t{1} << 20U);

[[nodiscard]] std::string encode_batch(const engine::PipeBatch& batch);
[[nodiscard]] std::string encode_follower(const rpc::PipeFollower& follower);
[[nodiscard]] std::string encode_piece(const engine::KvPiece& piece);

/// kCorrupt for what is no such payload, or whose rows or KV are not those that were sent. What
/// comes names no model. Trusts nothing.
[[nodiscard]] Result<StageMessage> decode_stage_message(std::string_view payload);

}  // namespace heddle::worker
