// Elastic engines on one device, in virtual time: the manager's core, the host's, and engines that
// map and unmap KV as kvcached does.

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/engines_core.h"
#include "core/manager/manager_core.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

constexpr DeviceId kGpu{0};
constexpr std::int64_t kPages = 320;
constexpr std::int64_t kFixed = 32;
constexpr std::int64_t kLeast = 8;
constexpr std::int64_t kPerRequest = 8;  ///< KV pages of a request.
constexpr Duration kStep = 10ms;

/// An engine whose requests get a token a step while they have KV.
class ToyEngine {
 public:
  explicit ToyEngine(bool elastic) : elastic_(elastic) {}

  void submit(RequestId id, std::int64_t count) { waiting_.push_back({id, count}); }
  void set_limit(std::int64_t pages) {
    total_ = pages;
    if (!elastic_) {
      limit_ = target_ = pages;
    }
  }
  /// The requests that have ended.
  std::vector<RequestId> step(Instant now) {
    if (elastic_ && now - looked_ >= 100ms) {
      looked_ = now;
      target_ = total_;
    }
    if (!waiting_.empty()) {  // The limit is applied as something is allocated.
      limit_ = target_;
      while (used() > limit_ && running_.size() > 1) {
        waiting_.push_front(running_.back());
        running_.pop_back();
      }
    }
    while (!waiting_.empty() && used() + kPerRequest <= limit_) {
      running_.push_back(waiting_.front());
      waiting_.pop_front();
    }
    prefixes_ = std::min(prefixes_, std::max<std::int64_t>(limit_ - used(), 0));
    tokens += std::ssize(running_);
    std::vector<RequestId> ended;
    for (Request& request : running_) {
      if (--request.left == 0) {
        ended.push_back(request.id);
        prefixes_ += 2;  // Some of what it had is kept.
      }
    }
    std::erase_if(running_, [](const Request& request) { return request.left == 0; });
    return ended;
  }
  /// Pages that it has mapped.
  [[nodiscard]] std::int64_t mapped() const { return used() + prefixes_; }
  [[nodiscard]] bool busy() const { return !running_.empty() || !waiting_.empty(); }

  std::int64_t tokens = 0;

 private:
  struct Request {
    RequestId id{};
    std::int64_t left = 0;
  };
  [[nodiscard]] std::int64_t used() const { return std::ssize(running_) * kPerRequest; }

  bool elastic_;
  std::int64_t total_ = kPages;
  std::int64_t target_ = kPages;
  std::int64_t limit_ = kPages;
  std::int64_t prefixes_ = 0;
  Instant looked_{};
  std::deque<Request> waiting_{};
  std::deque<Request> running_{};
};

class ElasticWorld {
 public:
  /// @param elastic  Else each engine has a fixed part of the device, all KV at once.
  ElasticWorld(bool elastic, int count) : elastic_(elastic) {
    const std::int64_t part = kPages / count;
    Configure manager{.options = {.planner = {.value = true}},
                      .devices = {{.id = kGpu, .name = "gpu", .pages = kPages}}};
    ConfigureEngines host{.devices = {{.id = kGpu, .pages = kPages}}};
    for (int i = 1; i <= count; ++i) {
      const ModelId id(static_cast<std::uint64_t>(i));
      const std::int64_t pages = elastic ? kFixed : part;
      const std::int64_t least = elastic ? kLeast : 0;
      manager.models.push_back({.id = id,
                                .name = "m" + std::to_string(i),
                                .context = 1,
                                .pin = true,
                                .footprints = {{kGpu, {.image_pages = pages + least}}},
                                .external = ExternalModel{}});
      host.engines.push_back({.model = id, .device = kGpu, .pages = pages, .kv_least = least});
      if (!elastic) {
        halves_ = part - kFixed;
      }
    }
    hear(manager);
    tell(host);
  }

  /// Keeps so many requests of a model going.
  void want(ModelId model, std::int64_t count) { wanted_[model] = count; }
  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
    }
  }
  [[nodiscard]] std::int64_t tokens() const {
    std::int64_t all = 0;
    for (const auto& [model, engine] : engines_) {
      all += engine.tokens;
    }
    return all;
  }
  [[nodiscard]] bool answers(ModelId model) const {
    return engines_.contains(model) && engines_.at(model).tokens > 0;
  }
  void kill(ModelId model) {
    if (const auto life = lives_.find(model); life != lives_.end()) {
      const EngineLife was = life->second;
      engines_.erase(model);
      lives_.erase(model);
      tell(EngineExited{.model = model, .life = was, .how = "signal 9"});
    }
  }
  [[nodiscard]] std::int64_t unfinished() const { return std::ssize(models_); }

 private:
  void step() {
    now_ += kStep;
    for (const auto& [model, count] : wanted_) {
      while (std::ranges::count_if(models_, [&](const auto& one) { return one.second == model; }) <
             count) {
        const RequestId id(++requests_);
        models_[id] = model;
        hear(RequestArrived{.request = id, .model = model});
      }
    }
    for (const ModelId model : keys()) {
      if (!engines_.contains(model)) {
        continue;
      }
      for (const RequestId id : engines_.at(model).step(now_)) {
        if (models_.erase(id) > 0) {
          hear(RequestFinished{.request = id});
        }
      }
    }
    if (elastic_ && ++looks_ % 10 == 0) {
      for (const ModelId model : keys()) {
        if (lives_.contains(model)) {
          const ToyEngine& engine = engines_.at(model);
          tell(KvSeen{.model = model,
                      .life = lives_.at(model),
                      .used_pages = engine.mapped(),
                      .busy = engine.busy()});
        }
      }
    }
    if (wake_ && now_ >= *wake_) {
      wake_.reset();
      hear(Tick{});
    }
    check();
  }

  /// No page is mapped twice.
  void check() {
    std::int64_t mapped = 0;
    for (const auto& [model, engine] : engines_) {
      mapped += kFixed + engine.mapped();
    }
    ASSERT_LE(mapped, kPages);
  }

  [[nodiscard]] std::vector<ModelId> keys() const {
    std::vector<ModelId> all;
    for (const auto& [model, engine] : engines_) {
      all.push_back(model);
    }
    return all;
  }

  void hear(const ManagerEvent& event) {
    std::vector<ManagerCommand> commands;
    manager_.step(now_, event, commands);
    manager_.check_invariants();
    for (const ManagerCommand& command : commands) {
      if (const auto* load = std::get_if<LoadOn>(&command)) {
        tell(*load);
      } else if (const auto* evict = std::get_if<EvictFrom>(&command)) {
        tell(*evict);
      } else if (const auto* limit = std::get_if<LimitKv>(&command)) {
        tell(*limit);
      } else if (const auto* failed = std::get_if<FailRequest>(&command)) {
        models_.erase(failed->request);  // Its engine died under it three times.
      } else if (const auto* wake = std::get_if<WakeAt>(&command)) {
        wake_ = wake->at;
      } else if (const auto* dispatch = std::get_if<Dispatch>(&command)) {
        const ModelId model = models_.at(dispatch->request);
        engines_.at(model).submit(dispatch->request, 60);
      }
    }
    settle();
  }
  void tell(const EnginesEvent& event) {
    std::vector<EnginesCommand> commands;
    host_.step(now_, event, commands);
    host_.check_invariants();
    for (const EnginesCommand& command : commands) {
      if (const auto* start = std::get_if<StartEngine>(&command)) {
        lives_[start->model] = start->life;
        ToyEngine engine(elastic_);
        engine.set_limit(elastic_ ? kLeast : halves_);
        engine.step(now_);
        engines_.insert_or_assign(start->model, std::move(engine));
        news_.emplace_back(
            EnginesEvent(EngineStarted{start->model, start->life, kFixed, std::nullopt}));
      } else if (const auto* limit = std::get_if<SetKvLimit>(&command)) {
        engines_.at(limit->model).set_limit(limit->pages);
      } else if (const auto* nudge = std::get_if<NudgeEngine>(&command)) {
        engines_.at(nudge->model).submit(RequestId(0), 1);
      } else if (const auto* told = std::get_if<TellManager>(&command)) {
        reports_.push_back(told->event);
      }
    }
    settle();
  }
  /// What follows from what was heard, in order and never from within.
  void settle() {
    if (settling_) {
      return;
    }
    settling_ = true;
    while (!reports_.empty() || !news_.empty()) {
      if (!reports_.empty()) {
        const ManagerEvent event = reports_.front();
        reports_.pop_front();
        hear(event);
      } else {
        const EnginesEvent event = news_.front();
        news_.pop_front();
        tell(event);
      }
    }
    settling_ = false;
  }

  bool elastic_;
  std::int64_t halves_ = 0;
  Instant now_{100s};
  ManagerCore manager_{};
  EnginesCore host_{};
  std::map<ModelId, ToyEngine> engines_{};
  std::map<ModelId, EngineLife> lives_{};
  std::map<ModelId, std::int64_t> wanted_{};
  std::map<RequestId, ModelId> models_{};  ///< Of unfinished requests.
  std::optional<Instant> wake_{};
  std::deque<ManagerEvent> reports_{};
  std::deque<EnginesEvent> news_{};
  bool settling_ = false;
  std::uint64_t requests_ = 0;
  int looks_ = 0;
};

constexpr ModelId kEarly{1};
constexpr ModelId kLate{2};
constexpr int kPeak = 800;  ///< Steps.

/// Tokens made in the steps of four peaks, each of which begins when all is idle.
std::int64_t peaks_in_turn(bool elastic) {
  ElasticWorld world(elastic, 2);
  std::int64_t made = 0;
  for (int i = 0; i < 4; ++i) {
    const ModelId model = i % 2 == 0 ? kEarly : kLate;
    world.want(model, 48);
    const std::int64_t before = world.tokens();
    world.run(kPeak);
    made += world.tokens() - before;
    world.want(model, 0);
    world.run(kPeak);
    EXPECT_EQ(world.unfinished(), 0);
  }
  return made;
}

TEST(ElasticWorld, TwoThatPeakInTurnMakeHalfAsManyTokensAgainAsWithHalves) {
  const std::int64_t halves = peaks_in_turn(false);
  const std::int64_t elastic = peaks_in_turn(true);
  EXPECT_GE(elastic, halves + halves / 2) << "of halves " << halves;
  RecordProperty("halves", std::to_string(halves));
  RecordProperty("elastic", std::to_string(elastic));
}

TEST(ElasticWorld, AnEngineComesAlthoughAnotherHasAllTheMemory) {
  ElasticWorld world(true, 2);
  world.want(kEarly, 60);
  world.run(400);
  EXPECT_FALSE(world.answers(kLate));
  world.want(kLate, 1);
  world.run(200);
  EXPECT_TRUE(world.answers(kLate));
}

/// Any number of engines with any load, some of which die: no page is mapped twice, and in the end
/// every request has its answer.
TEST(ElasticWorld, WhateverTheLoadNoPageIsMappedTwiceAndNothingIsLost) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const int count = 2 + static_cast<int>(rng.below(4));
    ElasticWorld world(true, count);
    const auto any = [&] { return ModelId(1 + rng.below(static_cast<std::uint64_t>(count))); };
    for (int i = 0; i < 40; ++i) {
      world.want(any(), static_cast<std::int64_t>(rng.below(30)));
      if (rng.below(8) == 0) {
        world.kill(any());
      }
      world.run(static_cast<int>(rng.below(120)));
      if (testing::Test::HasFatalFailure()) {
        return;
      }
    }
    for (int i = 1; i <= count; ++i) {
      world.want(ModelId(static_cast<std::uint64_t>(i)), 0);
    }
    world.run(6000);
    EXPECT_EQ(world.unfinished(), 0);
  }
}

}  // namespace
}  // namespace heddle::core
