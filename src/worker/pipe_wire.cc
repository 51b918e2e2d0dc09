#include "worker/pipe_wire.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/siphash.h"

namespace heddle::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "rows go as they lie in memory");

constexpr std::size_t kLengthBytes = 4;

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return siphash(SipKey{}, bytes).low;
}
std::uint64_t checksum(std::span<const float> rows) {
  return checksum(std::as_bytes(rows));
}

std::string payload_of(const rpc::ToStage& message, std::span<const std::byte> behind) {
  const std::string encoded = rpc::encode(message);
  const auto length = static_cast<std::uint32_t>(encoded.size());
  std::string payload;
  payload.reserve(kLengthBytes + encoded.size() + behind.size());
  payload.append(reinterpret_cast<const char*>(&length), kLengthBytes);
  payload += encoded;
  payload.append(reinterpret_cast<const char*>(behind.data()), behind.size());
  return payload;
}

Error corrupt(const std::string& what) {
  return {Code::kCorrupt, "a message of another stage: " + what};
}

Result<engine::PipeBatch> batch_of(rpc::PipeStep step, std::string_view rows) {
  if (rows.size() % sizeof(float) != 0 || rows.size() / sizeof(float) != step.floats) {
    return corrupt("batch " + std::to_string(step.number) + " says that " +
                   std::to_string(step.floats) + " numbers follow, which are " +
                   std::to_string(rows.size()) + " bytes");
  }
  engine::PipeBatch batch{.number = step.number,
                          .dropped = std::move(step.dropped),
                          .refused = std::move(step.refused)};
  for (rpc::PipeSlice& slice : step.slices) {
    batch.slices.push_back({.sequence = slice.sequence,
                            .position = slice.position,
                            .tokens = std::move(slice.tokens),
                            .prefix = std::move(slice.prefix),
                            .cache_salt = std::move(slice.cache_salt),
                            .wanted = slice.wanted});
  }
  batch.rows.resize(step.floats);
  if (!rows.empty()) {
    std::memcpy(batch.rows.data(), rows.data(), rows.size());
  }
  if (checksum(batch.rows) != step.checksum) {
    return corrupt("the rows of batch " + std::to_string(step.number) + " are not those sent");
  }
  return batch;
}

Result<engine::KvPiece> piece_of(rpc::PipeKv piece, std::string_view bytes) {
  const auto behind = std::as_bytes(std::span(bytes));
  if (bytes.size() != piece.bytes || checksum(behind) != piece.checksum) {
    return corrupt("the KV of piece " + std::to_string(piece.number) + " is not what was sent");
  }
  if (piece.end <= piece.begin) {
    return corrupt("piece " + std::to_string(piece.number) + " has no positions");
  }
  return engine::KvPiece{.number = piece.number,
                         .sequence = piece.sequence,
                         .begin = piece.begin,
                         .end = piece.end,
                         .from = std::move(piece.from),
                         .refused = piece.refused,
                         .bytes = std::string(bytes)};
}

}  // namespace

std::string encode_batch(const engine::PipeBatch& batch) {
  rpc::PipeStep step{.number = batch.number,
                     .dropped = batch.dropped,
                     .refused = batch.refused,
                     .floats = batch.rows.size(),
                     .checksum = checksum(batch.rows)};
  for (const engine::PipeSlice& slice : batch.slices) {
    step.slices.push_back({.sequence = slice.sequence,
                           .position = slice.position,
                           .tokens = slice.tokens,
                           .prefix = slice.prefix,
                           .cache_salt = slice.cache_salt,
                           .wanted = slice.wanted});
  }
  return payload_of(std::move(step), std::as_bytes(std::span(batch.rows)));
}

std::string encode_follower(const rpc::PipeFollower& follower) {
  return payload_of(follower, {});
}

std::string encode_piece(const engine::KvPiece& piece) {
  const auto bytes = std::as_bytes(std::span(piece.bytes));
  return payload_of(rpc::PipeKv{.number = piece.number,
                                .sequence = piece.sequence,
                                .begin = piece.begin,
                                .end = piece.end,
                                .from = piece.from,
                                .refused = piece.refused,
                                .bytes = piece.bytes.size(),
                                .checksum = checksum(bytes)},
                    bytes);
}

Result<StageMessage> decode_stage_message(std::string_view payload) {
  std::uint32_t length = 0;
  if (payload.size() < kLengthBytes) {
    return corrupt("it is cut off");
  }
  std::memcpy(&length, payload.data(), kLengthBytes);
  payload.remove_prefix(kLengthBytes);
  if (length > payload.size()) {
    return corrupt("it is cut off");
  }
  Result<rpc::ToStage> message = rpc::decode_to_stage(payload.substr(0, length));
  if (!message) {
    return message.error();
  }
  const std::string_view rest = payload.substr(length);
  if (auto* step = std::get_if<rpc::PipeStep>(&*message)) {
    Result<engine::PipeBatch> batch = batch_of(std::move(*step), rest);
    return batch ? Result<StageMessage>(std::move(*batch)) : batch.error();
  }
  if (auto* piece = std::get_if<rpc::PipeKv>(&*message)) {
    Result<engine::KvPiece> read = piece_of(std::move(*piece), rest);
    return read ? Result<StageMessage>(std::move(*read)) : read.error();
  }
  if (!rest.empty()) {
    return corrupt("something follows it");
  }
  return StageMessage(std::get<rpc::PipeFollower>(std::move(*message)));
}

}  // namespace heddle::worker
