// Guests on a GPU whose host is another one: two devices of the emulated driver. Who runs the
// attention there is weave's (worker/gpu_guests_test.cc); here nobody does, or nobody answers.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "engine/guests.h"
#include "engine/test_host.h"

namespace heddle::engine {
namespace {

constexpr ModelId kModel{7};
constexpr SequenceId kSequence{1};
constexpr std::uint64_t kPages = 512;
constexpr std::size_t kPageBytes = std::size_t{64} << 10U;
constexpr std::uint64_t kLent = 128;
constexpr std::int64_t kPrompt = 300;
constexpr std::int64_t kAnswer = 16;

/// Has no process behind it: whoever waits is let go after a while, from a thread.
class DeadHost final : public ops::AttentionHost {
 public:
  explicit DeadHost(device::Device& device)
      : memory_(device.allocate(device::Place::kHost, std::size_t{1} << 20U).value()),
        flags_(reinterpret_cast<device::Flag*>(memory_.data())) {}
  ~DeadHost() override {
    over_ = true;
    thread_.join();
  }
  DeadHost(const DeadHost&) = delete;
  DeadHost& operator=(const DeadHost&) = delete;

  void begin_step(std::span<const ops::GuestSequence> sequences) override {
    steps.emplace_back(sequences.begin(), sequences.end());
  }
  std::optional<ops::GuestMeeting> meet(std::int64_t /*layer*/, std::int64_t /*rows*/) override {
    ++layers;
    ticket_ += 2;
    auto* const floats = reinterpret_cast<float*>(memory_.data()) + 64;
    return ops::GuestMeeting{.query = floats,
                             .state = floats + (std::size_t{1} << 16U),
                             .posted = &flags_[0],
                             .served = &flags_[32],
                             .ticket = ticket_};
  }
  void post(const ops::GuestRows& /*rows*/) override {}
  bool await(const ops::GuestRows& /*rows*/) override { return false; }

  std::vector<std::vector<ops::GuestSequence>> steps{};
  std::int64_t layers = 0;

 private:
  void let_go() {
    while (!over_) {
      const std::uint32_t posted = flags_[0];
      if (posted != 0 && flags_[32] != posted + 1) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        flags_[32] = posted + 1;
      }
      std::this_thread::yield();
    }
  }

  device::Buffer memory_;
  device::Flag* flags_;
  std::uint32_t ticket_ = 0;
  std::atomic<bool> over_{false};
  std::thread thread_{[this] { let_go(); }};
};

class GpuGuestsTest : public testing::Test {
 protected:
  explicit GpuGuestsTest(const std::string& more = "", spec::DType dtype = spec::DType::kF32)
      : driver_("devices=2,memory=256MiB,granularity=65536" + more),
        host_(kPages, kPageBytes, gpu(0)),
        other_(gpu(1)),
        model_(host_.load(golden_directory() / "llama-gqa-sharded", dtype)),
        engine_(Engine::create(host_.device(), host_.pool(), {.run_ahead = true}).value()) {
    model_.spec.max_position = 512;
    HEDDLE_CHECK(
        engine_->add_model(kModel, model_.spec, model_.layout, model_.window.base(), kKvLease)
            .has_value());
    engine_->set_image_ready(kModel, model_.layout.bytes);
  }

  static device::CudaDeviceOptions gpu(int ordinal) {
    return {.ordinal = ordinal,
            .page_bytes = kPageBytes,
            .bytes = kPages * kPageBytes,
            .driver = emulator::EmulatedDriver::open().value()};
  }

  /// Memory of the other GPU, which this one attaches.
  Result<void> lend() {
    other_device_ = device::CudaDevice::create(other_).value();
    lent_ = other_device_->allocate_shared(kLent * kPageBytes).value();
    attached_ = host_.device().attach_shared(lent_.descriptor, lent_.buffer.bytes()).value();
    std::vector<device::PageId> pages;
    for (std::uint64_t page = 0; page < kLent; ++page) {
      pages.emplace_back(page);
    }
    return engine_->guests().lend(kModel, pages, attached_.data());
  }

  SliceResult step(std::int64_t tokens) {
    const auto outcome = engine_->run(
        {.batches = {{.model = kModel, .slices = {{.sequence = kSequence, .tokens = tokens}}}},
         .stable_steps = 8});
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
    return outcome->results[0];
  }

  /// Reads the prompt and generates; `before` is called before each token but the first.
  template <class Before>
  std::vector<SliceResult> generate(const Before& before) {
    SequenceStart start{.id = kSequence, .model = kModel, .prompt_tokens = kPrompt};
    for (std::int64_t i = 0; i < kPrompt; ++i) {
      start.tokens.push_back(static_cast<TokenId>((i * 37 + 11) % model_.spec.vocab));
    }
    start.params.temperature = 0.0F;
    start.params.max_tokens = kAnswer;
    start.params.logprobs = 2;
    start.params.ignore_eos = true;
    HEDDLE_CHECK(engine_->add_sequence(std::move(start)).has_value());
    std::vector<SliceResult> results{step(kPrompt)};
    while (results.back().finish == spec::FinishReason::kNone) {
      before(std::ssize(results));
      results.push_back(step(1));
    }
    engine_->remove_sequence(kSequence);
    return results;
  }

  /// Tokens are equal, and log probabilities nearly so: what is added up in parts is rounded
  /// otherwise.
  static void expect_alike(const std::vector<SliceResult>& a, const std::vector<SliceResult>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].token, b[i].token) << i;
      ASSERT_EQ(a[i].details.logprobs.size(), b[i].details.logprobs.size());
      for (std::size_t k = 0; k < a[i].details.logprobs.size(); ++k) {
        ASSERT_NEAR(a[i].details.logprobs[k].logprob, b[i].details.logprobs[k].logprob, 1e-4) << i;
      }
    }
  }

  emulator::EmulatedDriver driver_;
  TestHost host_;
  device::CudaDeviceOptions other_;
  std::unique_ptr<device::CudaDevice> other_device_{};
  device::SharedBuffer lent_{};
  device::Buffer attached_{};
  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(GpuGuestsTest, WhatIsAwayIsReadOverTheLinkWhereNobodyElseDoes) {
  const auto alone = generate([](std::int64_t) {});
  ASSERT_TRUE(lend());
  const auto woven = generate([this](std::int64_t token) {
    if (token == 3) {
      ASSERT_EQ(engine_->guests().move_out(kSequence, 130).value(), 128);
      EXPECT_GT(engine_->guests().used_pages(kModel), 0);
    } else if (token == 6) {
      ASSERT_EQ(engine_->guests().move_out(kSequence, 300 - 40).value(), 256);
    } else if (token == 9) {
      ASSERT_TRUE(engine_->guests().move_home(kSequence));
      EXPECT_EQ(engine_->guests().used_pages(kModel), 0);
    } else if (token == 12) {
      ASSERT_EQ(engine_->guests().move_out(kSequence, 256).value(), 256);
    }
  });
  expect_alike(alone, woven);
  EXPECT_EQ(engine_->guests().used_pages(kModel), 0) << "the sequence has gone";
}

TEST_F(GpuGuestsTest, StepsWithGuestsAreNeitherRecordedNorAhead) {
  ASSERT_TRUE(lend());
  unsigned long replayed = 0;
  const auto woven = generate([&](std::int64_t token) {
    if (token == 8) {
      EXPECT_GT(driver_.calls("cuGraphLaunch"), 2U);
      ASSERT_EQ(engine_->guests().move_out(kSequence, 256).value(), 256);
    } else if (token == 10) {
      replayed = driver_.calls("cuGraphLaunch");  // One was ahead.
    } else if (token == kAnswer - 1) {
      EXPECT_EQ(driver_.calls("cuGraphLaunch"), replayed);
    }
  });
  EXPECT_EQ(woven.size(), static_cast<std::size_t>(kAnswer));
}

TEST_F(GpuGuestsTest, ADeadHostCostsTimeAndNothingElse) {
  const auto alone = generate([](std::int64_t) {});
  ASSERT_TRUE(lend());
  DeadHost dead(host_.device());
  engine_->guests().set_host(kModel, &dead);
  const auto woven = generate([this](std::int64_t token) {
    if (token == 5) {
      ASSERT_EQ(engine_->guests().move_out(kSequence, 256).value(), 256);
    }
  });
  expect_alike(alone, woven);
  ASSERT_GE(dead.steps.size(), 9U);
  EXPECT_EQ(dead.steps.front()[0].border, 256);
  EXPECT_EQ(dead.layers, std::ssize(dead.steps) * model_.spec.layers);
  engine_->guests().set_host(kModel, nullptr);
}

class Bf16GuestsTest : public GpuGuestsTest {
 protected:
  Bf16GuestsTest() : GpuGuestsTest("", spec::DType::kBf16) {}
};

TEST_F(Bf16GuestsTest, LogProbabilitiesAreNearlyThoseWithoutGuests) {
  const auto alone = generate([](std::int64_t) {});
  ASSERT_TRUE(lend());
  const auto woven = generate([this](std::int64_t token) {
    if (token == 2) {
      ASSERT_EQ(engine_->guests().move_out(kSequence, 256).value(), 256);
    }
  });
  std::size_t same = 0;
  while (same < alone.size() && alone[same].token == woven[same].token) {
    ++same;
  }
  EXPECT_GT(same, 8U) << "two that are as likely may change places, but not soon";
  for (std::size_t i = 0; i < same; ++i) {
    EXPECT_NEAR(alone[i].details.logprobs[0].logprob, woven[i].details.logprobs[0].logprob, 6e-2)
        << i;
  }
}

class NoFlagsTest : public GpuGuestsTest {
 protected:
  NoFlagsTest() : GpuGuestsTest(",flags=0") {}
};

TEST_F(NoFlagsTest, AGpuThatCannotWaitForAnotherHasNoGuests) {
  const auto refused = lend();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_NE(refused.error().message.find("no stream memory operations"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace heddle::engine
