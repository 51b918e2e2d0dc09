#include "gateway/batch_turns.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using namespace std::chrono_literals;

const DeviceId kFirst{0};
const DeviceId kSecond{1};
constexpr Duration kQuiet = 10s;

/// A model that is on the first device and was not asked for an hour.
ModelUse here(std::uint32_t id) {
  return {
      .id = ModelId(id), .here = true, .on = {kFirst}, .may_be = {kFirst, kSecond}, .quiet = 1h};
}
ModelUse away(std::uint32_t id) {
  return {.id = ModelId(id), .may_be = {kFirst}, .quiet = 1h};
}

TEST(BatchTurnsTest, ALineRunsWhereNobodyAsks) {
  std::vector<ModelUse> all{here(1), here(2)};
  EXPECT_TRUE(may_begin(all, 0, kQuiet));
  all[0].quiet = 0s;
  EXPECT_TRUE(may_begin(all, 0, kQuiet)) << "it evicts nothing";
  all[1].clients = 1;
  EXPECT_FALSE(may_begin(all, 0, kQuiet)) << "its neighbour is asked";
  all[1].on = {kSecond};
  EXPECT_TRUE(may_begin(all, 0, kQuiet)) << "on another device";
  all[0].clients = 1;
  EXPECT_FALSE(may_begin(all, 0, kQuiet)) << "it is asked itself";
}

TEST(BatchTurnsTest, ALineWaitsForAClientWhoseModelIsToCome) {
  std::vector<ModelUse> all{here(1), away(2)};
  all[1].clients = 1;
  EXPECT_FALSE(may_begin(all, 0, kQuiet));
  all[1].may_be = {kSecond};
  EXPECT_TRUE(may_begin(all, 0, kQuiet));
}

TEST(BatchTurnsTest, AModelComesForALineWhereNobodyUsesWhatIsThere) {
  std::vector<ModelUse> all{away(1), here(2)};
  EXPECT_TRUE(may_begin(all, 0, kQuiet));
  all[1].quiet = 9s;
  EXPECT_FALSE(may_begin(all, 0, kQuiet)) << "it was asked a moment ago";
  all[0].may_be = {kFirst, kSecond};
  EXPECT_TRUE(may_begin(all, 0, kQuiet)) << "the other device has nothing";
  all[0].may_be = {kFirst};
  all[1].quiet = 1h;
  all[1].lines = 1;
  EXPECT_FALSE(may_begin(all, 0, kQuiet)) << "another model's lines run there";
  all[1].lines = 0;
  all[0].lines = 1;
  EXPECT_TRUE(may_begin(all, 0, kQuiet)) << "its own are no reason";
  all[1].clients = 1;
  EXPECT_FALSE(may_begin(all, 0, kQuiet));
}

TEST(BatchTurnsTest, LinesMakeWayForAModelThatIsToCome) {
  std::vector<ModelUse> all{here(1), away(2)};
  all[0].lines = 2;
  EXPECT_TRUE(called_back(all).empty());
  all[1].clients = 1;
  EXPECT_EQ(called_back(all), std::vector<std::size_t>{0});
  all[1].may_be = {kSecond};
  EXPECT_TRUE(called_back(all).empty()) << "it comes elsewhere";
}

TEST(BatchTurnsTest, LinesOfTheModelThatIsAwaitedComeWithIt) {
  std::vector<ModelUse> all{away(1)};
  all[0].lines = 2;
  all[0].clients = 1;
  EXPECT_TRUE(called_back(all).empty());
}

TEST(BatchTurnsTest, NoModelOfAClientIsDrainedForLines) {
  std::vector<ModelUse> all{away(1), here(2)};
  all[0].lines = 2;
  EXPECT_TRUE(called_back(all).empty());
  all[1].clients = 1;
  EXPECT_EQ(called_back(all), std::vector<std::size_t>{0});
  all[0].on = {kFirst};  // It is on its way: there was room.
  EXPECT_TRUE(called_back(all).empty());
}

TEST(BatchTurnsTest, LinesRunBesideClientsUntilThoseWaitLong) {
  std::vector<ModelUse> all{here(1), here(2)};
  all[0].lines = 2;
  all[0].clients = all[1].clients = 3;
  EXPECT_TRUE(called_back(all).empty());
  all[1].late = true;
  EXPECT_EQ(called_back(all), std::vector<std::size_t>{0});
  all[1].late = false;
  all[0].late = true;
  EXPECT_EQ(called_back(all), std::vector<std::size_t>{0});
}

}  // namespace
}  // namespace heddle::gateway
