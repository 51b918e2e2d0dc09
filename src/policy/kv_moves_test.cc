#include "policy/kv_moves.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr KvMoveOptions kOptions{.horizon = 100s, .bytes_per_second = 10.0};

KvModel model(std::uint64_t id, double demand, std::int64_t bytes, std::uint64_t at) {
  return {.model = ModelId(id), .demand = demand, .bytes = bytes, .at = {DeviceId(at)}};
}

std::vector<KvDevice> devices(std::uint64_t count) {
  std::vector<KvDevice> out;
  for (std::uint64_t d = 0; d < count; ++d) {
    out.push_back({.id = DeviceId(d), .host = HostId(d / 2), .bytes = 100});
  }
  return out;
}

// By hand: 9/70 on device 0 and nothing on 1. Moving the 5 leaves 4/80 and gives 5/90 there.
TEST(ChooseKvMoves, RelievesTheMostPressedDevice) {
  const std::vector<KvModel> models = {
      model(1, 4.0, 10, 0), model(2, 5.0, 10, 0), model(3, 0.0, 10, 0)};
  const std::vector<KvMove> moves = choose_kv_moves(models, devices(2), kOptions);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].model, ModelId(2));
  EXPECT_EQ(moves[0].to, DeviceId(1));
  EXPECT_NEAR(moves[0].gain, 1.0 - (5.0 / 90.0) / (9.0 / 70.0), 1e-12);
}

TEST(ChooseKvMoves, OnlyIfItPaysWithinTheHorizon) {
  const std::vector<KvModel> models = {model(1, 5.0, 10, 0), model(2, 5.0, 10, 0)};
  KvMoveOptions options = kOptions;  // It takes 1 s to move and gains (1/8 - 1/18) / (1/8).
  options.horizon = 1900ms;
  EXPECT_EQ(choose_kv_moves(models, devices(2), options).size(), 1U);
  options.horizon = 1700ms;
  EXPECT_TRUE(choose_kv_moves(models, devices(2), options).empty());
}

TEST(ChooseKvMoves, NoMoreThanAskedAndNoModelTwice) {
  std::vector<KvModel> models;
  for (std::uint64_t id = 0; id < 6; ++id) {
    models.push_back(model(id, 5.0, 5, 0));
  }
  EXPECT_EQ(choose_kv_moves(models, devices(4), kOptions).size(), 2U);
  KvMoveOptions many = kOptions;
  many.most = 100;
  EXPECT_LE(choose_kv_moves(models, devices(4), many).size(), 5U);
}

TEST(ChooseKvMoves, LeavesAloneWhatMayNotMoveAndWhatIsPlannedElsewhere) {
  std::vector<KvModel> models = {model(1, 5.0, 10, 0), model(2, 5.0, 10, 0)};
  models[0].movable = false;
  EXPECT_EQ(choose_kv_moves(models, devices(3), kOptions).front().model, ModelId(2));
  const std::vector<KvHome> homes = {{ModelId(1), {DeviceId(0)}}, {ModelId(2), {DeviceId(2)}}};
  KvMoveOptions planned = kOptions;
  planned.homes = homes;
  EXPECT_EQ(choose_kv_moves(models, devices(3), planned).front().to, DeviceId(2));
}

TEST(ChooseKvMoves, LowersTheHighestPressureOnRandomInput) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<KvModel> models;
    for (std::uint64_t id = 0; id < 12; ++id) {
      models.push_back(model(id,
                             static_cast<double>(rng.below(100)),
                             1 + static_cast<std::int64_t>(rng.below(30)),
                             rng.below(4)));
    }
    const auto pressures = [&] {
      std::vector<double> out;
      for (const KvDevice& d : kv_loads(models, devices(4))) {
        out.push_back(kv_pressure(d));
      }
      return out;
    };
    const std::vector<double> before = pressures();
    const std::vector<KvMove> moves = choose_kv_moves(models, devices(4), kOptions);
    for (const KvMove& move : moves) {
      ASSERT_GT(move.gain, 0.0);
      ASSERT_NE(move.from, move.to);
      models[move.model.value()].at = {move.to};
    }
    const std::vector<double> after = pressures();
    ASSERT_LE(*std::max_element(after.begin(), after.end()),
              *std::max_element(before.begin(), before.end()));
    std::reverse(models.begin(), models.end());
  }
}

}  // namespace
}  // namespace heddle::policy
