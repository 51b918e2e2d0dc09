#include "worker/pipe_wire.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::worker {
namespace {

engine::PipeBatch batch() {
  return {.number = 7,
          .dropped = {engine::SequenceId(3)},
          .slices = {{.sequence = engine::SequenceId(4),
                      .position = 2,
                      .tokens = {5, 6},
                      .prefix = {8, 9},
                      .cache_salt = "salt",
                      .wanted = 1}},
          .refused = {engine::SequenceId(2)},
          .rows = {1.5F, -0.0F, 3.0F, 1e-40F}};
}

TEST(PipeWire, ABatchComesBackAsItWas) {
  const engine::PipeBatch sent = batch();
  const auto message = decode_stage_message(encode_batch(sent));
  ASSERT_TRUE(message) << message.error().message;
  const auto& got = std::get<engine::PipeBatch>(*message);
  EXPECT_EQ(got.number, sent.number);
  EXPECT_EQ(got.dropped, sent.dropped);
  EXPECT_EQ(got.refused, sent.refused);
  EXPECT_EQ(got.rows, sent.rows);
  ASSERT_EQ(got.slices.size(), 1U);
  EXPECT_EQ(got.slices[0].sequence, sent.slices[0].sequence);
  EXPECT_EQ(got.slices[0].position, 2);
  EXPECT_EQ(got.slices[0].tokens, sent.slices[0].tokens);
  EXPECT_EQ(got.slices[0].prefix, sent.slices[0].prefix);
  EXPECT_EQ(got.slices[0].cache_salt, "salt");
  EXPECT_EQ(got.slices[0].wanted, 1);
}

TEST(PipeWire, AFollowerComesBackAsItWas) {
  const rpc::PipeFollower sent{
      .stage = 2, .kv = {{.tokens_per_block = 16, .blocks_per_page = 2, .window = 9}}, .pages = 30};
  const auto message = decode_stage_message(encode_follower(sent));
  ASSERT_TRUE(message) << message.error().message;
  EXPECT_EQ(std::get<rpc::PipeFollower>(*message), sent);
}

engine::KvPiece piece() {
  return {.number = 9,
          .sequence = engine::SequenceId(4),
          .begin = 16,
          .end = 32,
          .from = {16, 24},
          .bytes = std::string("\0keys and values", 16)};
}

TEST(PipeWire, APieceOfKvComesBackAsItWas) {
  engine::KvPiece sent = piece();
  for (const bool refused : {false, true}) {
    sent.refused = refused;
    const auto message = decode_stage_message(encode_piece(sent));
    ASSERT_TRUE(message) << message.error().message;
    const auto& got = std::get<engine::KvPiece>(*message);
    EXPECT_EQ(got.number, sent.number);
    EXPECT_EQ(got.sequence, sent.sequence);
    EXPECT_EQ(got.begin, sent.begin);
    EXPECT_EQ(got.end, sent.end);
    EXPECT_EQ(got.from, sent.from);
    EXPECT_EQ(got.refused, refused);
    EXPECT_EQ(got.bytes, sent.bytes);
  }
}

TEST(PipeWire, KvThatChangedOnTheWayIsRefused) {
  const std::string payload = encode_piece(piece());
  for (std::size_t at = payload.size() - piece().bytes.size(); at < payload.size(); ++at) {
    std::string changed = payload;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_FALSE(decode_stage_message(changed)) << "byte " << at;
  }
  EXPECT_FALSE(decode_stage_message(payload + "1"));
  EXPECT_FALSE(decode_stage_message(payload.substr(0, payload.size() - 1)));
  engine::KvPiece none = piece();
  none.end = none.begin;
  EXPECT_FALSE(decode_stage_message(encode_piece(none)));
  none.end = -1;
  EXPECT_FALSE(decode_stage_message(encode_piece(none))) << "counts are not negative";
}

TEST(PipeWire, RowsThatChangedOnTheWayAreRefused) {
  const std::string payload = encode_batch(batch());
  const std::size_t rows = 4 * sizeof(float);
  for (std::size_t at = payload.size() - rows; at < payload.size(); ++at) {
    std::string changed = payload;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_FALSE(decode_stage_message(changed)) << "byte " << at;
  }
  EXPECT_FALSE(decode_stage_message(payload + "1234"));
  EXPECT_FALSE(decode_stage_message(payload.substr(0, payload.size() - 4)));
  EXPECT_FALSE(decode_stage_message(encode_follower({.stage = 1, .kv = {}, .pages = 3}) + "1234"));
}

TEST(PipeWire, WhateverComesIsReadOrRefused) {
  constexpr std::uint64_t kSeed = 5;
  Rng rng(kSeed);
  const std::string payloads[] = {encode_batch(batch()), encode_piece(piece())};
  for (std::size_t round = 0; round < 8'000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    const std::string& payload = payloads[round % 2];
    std::string changed = payload.substr(0, rng.below(payload.size() + 1));
    for (std::uint64_t i = rng.below(4); i > 0 && !changed.empty(); --i) {
      changed[rng.below(changed.size())] = static_cast<char>(rng.below(256));
    }
    const auto message = decode_stage_message(changed);
    EXPECT_TRUE(message.has_value() || message.error().code == Code::kCorrupt);
  }
}

}  // namespace
}  // namespace heddle::worker
