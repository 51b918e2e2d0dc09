// Two engines of two emulated GPUs: one has guests with the other, which goes on with its own text
// meanwhile. As two workers would have it, in one process and in two.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "cuda_emulator/emulated_driver.h"
#include "engine/engine.h"
#include "engine/guests.h"
#include "engine/kv_plan.h"
#include "engine/test_host.h"
#include "rpc/link.h"
#include "weave/stream_client.h"
#include "weave/stream_server.h"
#include "worker/hot_guests.h"
#include "worker/lent_memory.h"
#include "worker/peer_wire.h"

#include <sys/wait.h>
#include <unistd.h>

namespace heddle::worker {
namespace {

using namespace std::chrono_literals;

constexpr ModelId kModel{7};
constexpr std::uint64_t kPages = 512;
constexpr std::size_t kPageBytes = std::size_t{64} << 10U;
constexpr std::uint64_t kLent = 128;
constexpr std::int64_t kAnswer = 14;

constexpr const char* kMachine = "devices=2,memory=256MiB,granularity=65536";

device::CudaDeviceOptions gpu(int ordinal) {
  return {.ordinal = ordinal,
          .page_bytes = kPageBytes,
          .bytes = kPages * kPageBytes,
          .driver = emulator::EmulatedDriver::open().value()};
}

std::vector<PageId> lent_pages() {
  std::vector<PageId> pages;
  for (std::uint64_t page = 0; page < kLent; ++page) {
    pages.emplace_back(page);
  }
  return pages;
}

/// An engine with a model on an emulated GPU.
struct Side {
  Side(int ordinal, const std::string& golden)
      : host(kPages, kPageBytes, gpu(ordinal)),
        model(host.load(engine::golden_directory() / golden, spec::DType::kF32)),
        engine(engine::Engine::create(host.device(), host.pool(), {.run_ahead = true}).value()) {
    model.spec.max_position = 512;
    HEDDLE_CHECK(
        engine->add_model(kModel, model.spec, model.layout, model.window.base(), engine::kKvLease)
            .has_value());
    engine->set_image_ready(kModel, model.layout.bytes);
  }

  void add(std::uint64_t id, std::int64_t prompt) const {
    engine::SequenceStart start{
        .id = engine::SequenceId{id}, .model = kModel, .prompt_tokens = prompt};
    for (std::int64_t i = 0; i < prompt; ++i) {
      start.tokens.push_back(
          static_cast<TokenId>((i * 37 + 11 * static_cast<std::int64_t>(id)) % model.spec.vocab));
    }
    start.params.temperature = 0.0F;
    start.params.max_tokens = kAnswer;
    start.params.ignore_eos = true;
    HEDDLE_CHECK(engine->add_sequence(std::move(start)).has_value());
  }
  /// A step of these sequences; what they sampled, in the order of the ids.
  [[nodiscard]] std::vector<TokenId> step(const std::vector<std::uint64_t>& ids,
                                          std::int64_t tokens) const {
    policy::StepPlan plan{.batches = {{.model = kModel}}, .stable_steps = tokens == 1 ? 8 : 1};
    for (const std::uint64_t id : ids) {
      plan.batches[0].slices.push_back({.sequence = engine::SequenceId{id}, .tokens = tokens});
    }
    auto outcome = engine->run(plan);
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == ids.size());
    std::ranges::sort(outcome->results, {}, [](const auto& result) { return result.sequence; });
    std::vector<TokenId> sampled;
    for (const engine::SliceResult& result : outcome->results) {
      sampled.push_back(*result.token);
    }
    return sampled;
  }

  /// Two sequences, one of which has guests while `woven`.
  std::vector<std::vector<TokenId>> generate(bool woven) const {
    add(1, 40);
    add(2, 300);
    std::vector<std::vector<TokenId>> steps;
    steps.push_back(step({1}, 40));
    steps.push_back(step({2}, 300));
    for (std::int64_t token = 1; token < kAnswer; ++token) {
      if (woven && (token == 3 || token == 7)) {
        const std::int64_t away = token == 3 ? 128 : 256;
        HEDDLE_CHECK(engine->guests().move_out(engine::SequenceId{2}, away).value() == away);
      }
      steps.push_back(step({1, 2}, 1));
    }
    engine->remove_sequence(engine::SequenceId{1});
    engine->remove_sequence(engine::SequenceId{2});
    return steps;
  }

  engine::TestHost host;
  engine::LoadedModel model;
  std::unique_ptr<engine::Engine> engine;
};

weave::Geometry geometry_of(const Side& side) {
  const spec::ModelSpec& spec = side.model.spec;
  const auto plan =
      engine::plan_kv(spec, engine::all_layers(spec), side.model.layout.dtype, kPageBytes).value();
  const std::string kernels = ops::kernels_name(device::Kind::kCuda).value();
  weave::Geometry g{.page_bytes = kPageBytes,
                    .kv = static_cast<std::int64_t>(plan.dtype),
                    .heads = spec.heads,
                    .kv_heads = spec.kv_heads,
                    .head_dim = spec.head_dim,
                    .border = ops::attention_border(device::Kind::kCuda),
                    .layers = spec.layers,
                    .groups = std::ssize(plan.groups),
                    .rows = 4,
                    .blocks = plan.groups[0].geometry.blocks_for(spec.max_position),
                    .scale = 1.0F / std::sqrt(static_cast<float>(spec.head_dim))};
  std::copy_n(kernels.begin(), std::min<std::size_t>(kernels.size(), 16), g.kernels.begin());
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    const engine::KvPlan::Place& place = plan.place(layer);
    const memory::KvGeometry& kv = plan.groups[place.group].geometry;
    const auto offset = place.layer_in_group * static_cast<std::int64_t>(kv.layer_stride());
    g.places[static_cast<std::size_t>(layer)] = {
        .group = static_cast<std::int64_t>(place.group),
        .key_offset = offset,
        .value_offset = offset + static_cast<std::int64_t>(kv.value_offset()),
        .block_bytes = static_cast<std::int64_t>(kv.block_bytes),
        .block_tokens = kv.block_tokens};
  }
  return g;
}

class GpuGuestsTest : public testing::TestWithParam<const char*> {
 protected:
  GpuGuestsTest() {
    HEDDLE_CHECK(hot_.engine->guests().lend(kModel, lent_pages(), attached_.data()).has_value());
    server_ = weave::StreamServer::create(weave::JobArea::attach(area_->fd()).value(),
                                          {.device = cold_.host.device(),
                                           .kernels = *ops::kernels_for(device::Kind::kCuda),
                                           .kernels_name = name_,
                                           .pages = lent_.buffer.data(),
                                           .page_bytes = kPageBytes})
                  .value();
    server_->lend(lent_pages());
    client_ =
        weave::StreamClient::create(area_, hot_.host.device(), {.patience = patience_}).value();
    hot_.engine->guests().set_host(kModel, client_.get());
  }
  ~GpuGuestsTest() override { hot_.engine->guests().set_host(kModel, nullptr); }

  std::vector<std::vector<TokenId>> cold_text() const {
    cold_.add(1, 30);
    std::vector<std::vector<TokenId>> steps{cold_.step({1}, 30)};
    while (std::ssize(steps) < kAnswer) {
      steps.push_back(cold_.step({1}, 1));
    }
    cold_.engine->remove_sequence(engine::SequenceId{1});
    return steps;
  }

  Duration patience_ = 20s;
  emulator::EmulatedDriver driver_{kMachine};
  std::string name_ = ops::kernels_name(device::Kind::kCuda).value();
  Side hot_{0, GetParam()};
  Side cold_{1, "llama-gqa-sharded"};
  device::SharedBuffer lent_ = cold_.host.device().allocate_shared(kLent * kPageBytes).value();
  device::Buffer attached_ =
      hot_.host.device().attach_shared(lent_.descriptor, lent_.buffer.bytes()).value();
  std::shared_ptr<weave::JobArea> area_ = weave::JobArea::create(geometry_of(hot_)).value();
  std::unique_ptr<weave::StreamServer> server_{};
  std::unique_ptr<weave::StreamClient> client_{};
};

TEST_P(GpuGuestsTest, AHotGpuGeneratesTheSameWithTheHelpOfAnotherWhichDoesSoToo) {
  const auto alone = hot_.generate(/*woven=*/false);
  const auto cold_alone = cold_text();
  std::atomic<bool> over{false};
  std::jthread serving([&] {
    while (!over) {
      EXPECT_TRUE(server_->serve(20ms).has_value());
    }
  });
  std::jthread cold([&] { EXPECT_EQ(cold_text(), cold_alone); });
  EXPECT_EQ(hot_.generate(/*woven=*/true), alone);
  over = true;
  serving.join();
  // From the third token on, but for one that was ahead when its sequence moved.
  const auto steps = static_cast<std::uint64_t>(kAnswer - 3 - 1);
  EXPECT_EQ(client_->asked(), steps);
  EXPECT_EQ(client_->let_go_of(), 0U);
  EXPECT_EQ(server_->steps(), steps);
  EXPECT_GT(server_->layers(), 0U);
}

TEST_P(GpuGuestsTest, AHostThatDiesMeanwhileIsGoneOnWithout) {
  const auto alone = hot_.generate(/*woven=*/false);
  std::jthread serving([&] {
    for (int step = 0; step < 4; ++step) {
      EXPECT_TRUE(server_->serve(60s).has_value());
    }
    area_->close();  // As its worker's agent would; before, it may have been asked once more.
  });
  EXPECT_EQ(hot_.generate(/*woven=*/true), alone);
  serving.join();
  EXPECT_EQ(server_->steps(), 4U);
  EXPECT_LE(client_->let_go_of(), 1U);
}

// Several sequences of different lengths come and go at random, as far as there is room.
TEST_P(GpuGuestsTest, RandomMovesChangeNoText) {
  const std::vector<std::uint64_t> ids{1, 2, 3, 4};
  const std::vector<std::int64_t> prompts{20, 140, 280, 150};
  const auto generate = [&](Rng* moves) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      hot_.add(ids[i], prompts[i]);
    }
    std::vector<std::vector<TokenId>> steps;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      steps.push_back(hot_.step({ids[i]}, prompts[i]));
    }
    engine::Guests guests = hot_.engine->guests();
    for (std::int64_t token = 1; token < kAnswer; ++token) {
      for (const std::uint64_t id : ids) {
        const engine::SequenceId sequence{id};
        if (moves != nullptr && moves->below(3) == 0) {
          if (guests.tokens(sequence) > 0 && moves->below(2) == 0) {
            EXPECT_TRUE(guests.move_home(sequence));
          } else {
            EXPECT_TRUE(
                guests.move_out(sequence, 128 + 16 * static_cast<std::int64_t>(moves->below(9))));
          }
        }
      }
      steps.push_back(hot_.step(ids, 1));
    }
    for (const std::uint64_t id : ids) {
      hot_.engine->remove_sequence(engine::SequenceId{id});
    }
    return steps;
  };
  const auto alone = generate(nullptr);
  std::atomic<bool> over{false};
  std::jthread serving([&] {
    while (!over) {
      EXPECT_TRUE(server_->serve(20ms).has_value());
    }
  });
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    Rng moves(seed);
    EXPECT_EQ(generate(&moves), alone) << seed;
  }
  over = true;
  serving.join();
  EXPECT_GT(client_->asked(), 10U);
  EXPECT_EQ(server_->steps(), client_->asked());
}

/// The host's side, as a process that is killed in the middle of a step.
[[noreturn]] void host_until_killed(const Descriptor& socket, std::uint64_t steps) {
  Descriptor area;
  HEDDLE_CHECK(receive_reply(socket, 60s, area).has_value());
  const emulator::EmulatedDriver driver(kMachine);
  const auto device = device::CudaDevice::create(gpu(1)).value();
  const auto lent = device->allocate_shared(kLent * kPageBytes).value();
  HEDDLE_CHECK(send_reply(socket, {.answer = PeerAnswer::kGranted}, &lent.descriptor).has_value());
  const std::string name = ops::kernels_name(device::Kind::kCuda).value();
  const auto shared = weave::JobArea::attach(area.get()).value();
  const auto server =
      weave::StreamServer::create(shared,
                                  {.device = *device,
                                   .kernels = *ops::kernels_for(device::Kind::kCuda),
                                   .kernels_name = name,
                                   .pages = lent.buffer.data(),
                                   .page_bytes = kPageBytes})
          .value();
  server->lend(lent_pages());
  while (server->steps() < steps) {
    HEDDLE_CHECK(server->serve(60s).has_value());
  }
  // It is asked for the next step, and has answered nothing of it.
  HEDDLE_CHECK(shared->posted().wait_past(shared->served().get(), 0s, 60s));
  (void)::kill(::getpid(), SIGKILL);
  ::_exit(1);
}

// What the worker's part of it does with memory that comes page by page.
TEST(HotGuestsOfAGpu, PagesAreOfUseOnceTheirMemoryIsMapped) {
  const emulator::EmulatedDriver driver(kMachine);
  Side hot(0, "llama-gqa-sharded");
  Side cold(1, "llama-gqa-sharded");
  HotGuests guests(*hot.engine, hot.host.device());
  const std::vector<PageId> pages{PageId(3), PageId(900)};
  ASSERT_TRUE(guests.unable(kModel, pages));
  const auto there = LentMemory::create(cold.host.device(), 1024).value();
  for (const PageId page : pages) {
    EXPECT_TRUE(guests.unable(kModel, pages)) << "one is missing";
    GuestMemory memory{.of = {.model = kModel, .pages = {page}, .device_pages = 1024}};
    memory.descriptors.push_back(there->make(page).value());
    guests.map(memory);
  }
  ASSERT_FALSE(guests.unable(kModel, pages));
  guests.take(kModel, pages);
  EXPECT_EQ(hot.engine->guests().lent_pages(kModel), 2) << "one beyond this GPU's own pages";
  EXPECT_EQ(guests.give_back(kModel, 1).pages, std::vector<PageId>{PageId(900)});
  EXPECT_TRUE(guests.unable(kModel, {PageId(900)})) << "it is not mapped any more";
  EXPECT_FALSE(guests.unable(kModel, {PageId(3)}));
  EXPECT_EQ(guests.give_back(kModel, 1).pages, std::vector<PageId>{PageId(3)});
  guests.unmap(kModel, {PageId(3)});  // As after a refusal: nothing is left to unmap.
  EXPECT_TRUE(guests.unable(kModel, {PageId(3)}));
}

TEST(HotGuestsOfAGpu, MemoryThatCannotBeMappedIsOfNoUse) {
  const emulator::EmulatedDriver driver(kMachine);
  Side hot(0, "llama-gqa-sharded");
  HotGuests guests(*hot.engine, hot.host.device());
  GuestMemory memory{.of = {.model = kModel, .pages = {PageId(3)}, .device_pages = 8}};
  memory.descriptors.emplace_back();
  guests.map(memory);
  const auto why = guests.unable(kModel, {PageId(3)});
  ASSERT_TRUE(why);
  EXPECT_EQ(why->code, Code::kFailedPrecondition);
}

TEST(GpuGuestsOfTwoProcesses, AHostThatIsKilledCostsTimeAndNothingElse) {
  auto sockets = rpc::packet_pair().value();
  const pid_t child = ::fork();
  HEDDLE_CHECK(child >= 0);
  if (child == 0) {
    host_until_killed(sockets.second, 5);
  }
  const emulator::EmulatedDriver driver(kMachine);
  Side hot(0, "llama-gqa-sharded");
  const auto area = weave::JobArea::create(geometry_of(hot)).value();
  const Descriptor passed(::dup(area->fd()));
  ASSERT_TRUE(send_reply(sockets.first, {.answer = PeerAnswer::kGranted}, &passed));
  Descriptor lent;
  ASSERT_TRUE(receive_reply(sockets.first, 60s, lent));
  const device::Buffer attached = hot.host.device().attach_shared(lent, kLent * kPageBytes).value();
  ASSERT_TRUE(hot.engine->guests().lend(kModel, lent_pages(), attached.data()));
  const auto alone = hot.generate(/*woven=*/false);
  const auto client =
      weave::StreamClient::create(area, hot.host.device(), {.patience = 2s}).value();
  hot.engine->guests().set_host(kModel, client.get());
  EXPECT_EQ(hot.generate(/*woven=*/true), alone);
  hot.engine->guests().set_host(kModel, nullptr);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_EQ(client->asked(), 6U);
  EXPECT_EQ(client->let_go_of(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Models,
                         GpuGuestsTest,
                         testing::Values("llama-gqa-sharded", "qwen2-window-types-new"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace heddle::worker
