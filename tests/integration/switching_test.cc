// Models that do not fit together, in turn, on real workers.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/test_host.h"
#include "live_system.h"

namespace heddle::tests {
namespace {

std::vector<TokenId> prompt_of(const engine::Golden& golden) {
  return {golden.input_ids.begin(), golden.input_ids.begin() + 16};
}

TEST(Switching, OneModelAnswersAsTransformersDo) {
  config::Config config = small_host(std::uint64_t{2} << 20U);
  add_golden(config, "qwen3-window");
  LiveSystem system(config);
  ASSERT_FALSE(system.failure().has_value()) << system.failure()->message;
  const engine::Golden golden = engine::read_golden("qwen3-window");
  const auto answer = system.ask("qwen3-window", prompt_of(golden), std::ssize(golden.greedy));
  ASSERT_TRUE(system.finish(*answer));
  ASSERT_TRUE(answer->done()) << answer->error()->message;
  EXPECT_EQ(answer->tokens(), golden.greedy);
}

/// Resident memory of a process, the arena's pages that it touched included [bytes].
std::uint64_t resident_bytes(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) {
      return std::stoull(line.substr(6)) << 10U;
    }
  }
  return 0;
}

TEST(Switching, ModelsThatDoNotFitTogetherTakeTurns) {
  config::Config config = small_host(0);
  for (const char* name : {"qwen3-window", "llama-mha-f32", "mistral-plain"}) {
    add_golden(config, name);
  }
  config.devices[0].memory = memory_for_one(config, 1);
  LiveSystem system(config);
  ASSERT_FALSE(system.failure().has_value()) << system.failure()->message;
  std::map<std::string, engine::Golden> goldens;
  for (const config::ModelConfig& model : config.models) {
    goldens[model.id] = engine::read_golden(model.id);
  }
  constexpr int kSwitches = 100;
  std::vector<double> switch_ms;
  for (int i = 0; i < kSwitches; ++i) {
    const std::string& name = config.models[static_cast<std::size_t>(i) % 3].id;
    const engine::Golden& golden = goldens.at(name);
    const auto answer = system.ask(name, prompt_of(golden), std::ssize(golden.greedy));
    ASSERT_TRUE(system.finish(*answer)) << "switch " << i;
    ASSERT_TRUE(answer->done()) << answer->error()->message;
    ASSERT_EQ(answer->tokens(), golden.greedy) << "switch " << i;
    const core::RequestTimes& times = answer->record().times;
    switch_ms.push_back(
        std::chrono::duration<double, std::milli>(times.dispatched - times.arrived).count());
  }
  std::sort(switch_ms.begin() + 3, switch_ms.end());
  RecordProperty("switch_ms_p50", std::to_string(switch_ms[switch_ms.size() / 2]));
  std::printf("switch from the host cache: p50 %.2f ms, p90 %.2f ms, most %.2f ms\n",
              switch_ms[switch_ms.size() / 2],
              switch_ms[switch_ms.size() * 9 / 10],
              switch_ms.back());
  std::uint64_t loads = 0;
  for (const core::ModelStatus& model : system.system().models()) {
    loads += model.loads[static_cast<std::size_t>(core::LoadReason::kRequest)];
  }
  EXPECT_EQ(loads, static_cast<std::uint64_t>(kSwitches)) << "every request took a switch";

  // At rest, every page is somewhere: what is not free holds the one model that is resident, or
  // the images of the others.
  for (const config::ModelConfig& model : config.models) {
    bool unloaded = false;
    system.system().unload(
        system.model(model.id).id, core::EvictionReason::kOperator, [&](Result<void> done) {
          ASSERT_TRUE(done) << done.error().message;
          unloaded = true;
        });
    ASSERT_TRUE(system.run_until([&] { return unloaded; }));
  }
  const auto device_usage = [&] { return system.system().devices()[0].usage; };
  ASSERT_TRUE(system.run_until([&] { return device_usage().free == device_usage().total; }));
  EXPECT_EQ(static_cast<std::uint64_t>(device_usage().total) * kPageBytes,
            config.devices[0].memory);
  const ledger::PoolUsage host = system.system().host_usage();
  EXPECT_EQ(host.free + host.of(ledger::LeaseKind::kImage).held, host.total);
  constexpr std::uint64_t kProcessBytes = std::uint64_t{150} << 20U;
  EXPECT_LT(resident_bytes(system.system().worker_pid(DeviceId(0))),
            config.host.memory + config.devices[0].memory + kProcessBytes);
}

TEST(Switching, CopiesOverALinkOfTheBandwidthAsked) {
  config::Config config = small_host(0);
  add_golden(config, "qwen3-window");
  add_golden(config, "llama-mha-f32");
  config.devices[0].memory = memory_for_one(config, 1);
  config.devices[0].copy = true;
  config.devices[0].load_bandwidth = 2'000'000;
  LiveSystem system(config);
  ASSERT_FALSE(system.failure().has_value());
  std::uint64_t copied = 0;
  for (int i = 0; i < 6; ++i) {
    const std::string& name = config.models[static_cast<std::size_t>(i) % 2].id;
    const engine::Golden golden = engine::read_golden(name);
    const auto answer = system.ask(name, prompt_of(golden), std::ssize(golden.greedy));
    ASSERT_TRUE(system.finish(*answer));
    ASSERT_EQ(answer->tokens(), golden.greedy);
    const core::RequestTimes& times = answer->record().times;
    const std::uint64_t image = system.model(name).image_bytes;
    copied += image;
    const Duration link(image * 1'000'000'000 / config.devices[0].load_bandwidth);
    EXPECT_GE(times.finished - times.arrived, link) << "the head comes last over the link";
  }
  ASSERT_TRUE(system.run_until(
      [&] { return system.system().worker_stats(DeviceId(0)).copied_bytes >= copied; }));
  EXPECT_EQ(system.system().worker_stats(DeviceId(0)).copied_bytes, copied);
  EXPECT_TRUE(system.model("qwen3-window").host_cached);
  EXPECT_TRUE(system.model("llama-mha-f32").host_cached) << "a copied image stays the host's";
}

TEST(Switching, TwoDevicesServeTwoModelsAtOnce) {
  config::Config config = small_host(0, 2);
  add_golden(config, "qwen3-window");
  add_golden(config, "llama-mha-f32");
  for (config::DeviceConfig& device : config.devices) {
    device.memory = memory_for_one(config, 4);
    device.pace.step = std::chrono::milliseconds(2);
  }
  LiveSystem system(config);
  ASSERT_FALSE(system.failure().has_value());
  ASSERT_TRUE(system.workers_up());
  const engine::Golden qwen = engine::read_golden("qwen3-window");
  const engine::Golden llama = engine::read_golden("llama-mha-f32");
  const auto first = system.ask("qwen3-window", prompt_of(qwen), std::ssize(qwen.greedy));
  const auto second = system.ask("llama-mha-f32", prompt_of(llama), std::ssize(llama.greedy));
  ASSERT_TRUE(system.finish(*first));
  ASSERT_TRUE(system.finish(*second));
  EXPECT_EQ(first->tokens(), qwen.greedy);
  EXPECT_EQ(second->tokens(), llama.greedy);
  ASSERT_TRUE(system.model("qwen3-window").device.has_value());
  ASSERT_TRUE(system.model("llama-mha-f32").device.has_value());
  EXPECT_NE(system.model("qwen3-window").device, system.model("llama-mha-f32").device);
}

TEST(Switching, AReloadAddsAndRemovesModelsWhileOthersAnswer) {
  config::Config config = small_host(std::uint64_t{2} << 20U);
  add_golden(config, "qwen3-window");
  add_golden(config, "llama-mha-f32");
  config.devices[0].pace.step = std::chrono::milliseconds(2);
  LiveSystem system(config);
  ASSERT_FALSE(system.failure().has_value());
  const engine::Golden qwen = engine::read_golden("qwen3-window");
  const engine::Golden llama = engine::read_golden("llama-mha-f32");
  const engine::Golden mistral = engine::read_golden("mistral-plain");
  const auto staying = system.ask("qwen3-window", prompt_of(qwen), std::ssize(qwen.greedy));
  const auto leaving = system.ask("llama-mha-f32", prompt_of(llama), std::ssize(llama.greedy));
  ASSERT_TRUE(
      system.run_until([&] { return !staying->tokens().empty() && !leaving->tokens().empty(); }));
  const ModelId kept = system.model("qwen3-window").id;

  config::Config changed = config;
  changed.models.pop_back();
  add_golden(changed, "mistral-plain");
  bool reloaded = false;
  system.system().reconfigure(changed, [&](Result<void> done) {
    ASSERT_TRUE(done) << done.error().message;
    reloaded = true;
  });
  ASSERT_TRUE(system.run_until([&] { return reloaded; }));
  EXPECT_EQ(system.model("qwen3-window").id, kept);
  const auto added = system.ask("mistral-plain", prompt_of(mistral), std::ssize(mistral.greedy));
  for (const auto& answer : {staying, leaving, added}) {
    ASSERT_TRUE(system.finish(*answer));
    ASSERT_TRUE(answer->done()) << answer->error()->message;
  }
  EXPECT_EQ(staying->tokens(), qwen.greedy);
  EXPECT_EQ(leaving->tokens(), llama.greedy) << "what runs ends on the model that is removed";
  EXPECT_EQ(added->tokens(), mistral.greedy);

  changed.devices[0].memory *= 2;
  std::optional<Result<void>> refused;
  system.system().reconfigure(changed, [&](Result<void> done) { refused = done; });
  ASSERT_TRUE(system.run_until([&] { return refused.has_value(); }));
  EXPECT_EQ(refused->error().code, Code::kFailedPrecondition);
}

TEST(Switching, DrainingLetsRequestsEndAndTakesNoMore) {
  config::Config config = small_host(std::uint64_t{2} << 20U);
  add_golden(config, "qwen3-window");
  config.devices[0].pace.step = std::chrono::milliseconds(2);
  LiveSystem system(config);
  const engine::Golden golden = engine::read_golden("qwen3-window");
  const auto running = system.ask("qwen3-window", prompt_of(golden), std::ssize(golden.greedy));
  ASSERT_TRUE(system.run_until([&] { return !running->tokens().empty(); }));
  bool drained = false;
  system.system().drain(steady_now() + std::chrono::minutes(1), [&] { drained = true; });
  const auto late = system.ask("qwen3-window", prompt_of(golden), 5);
  ASSERT_TRUE(system.run_until([&] { return drained; }));
  EXPECT_EQ(running->tokens(), golden.greedy);
  ASSERT_TRUE(late->error().has_value());
  EXPECT_EQ(late->error()->code, Code::kUnavailable);
}

}  // namespace
}  // namespace heddle::tests
