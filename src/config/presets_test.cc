#include "config/presets.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using spec::EngineKind;
using spec::SuspendLevel;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

EngineConfig engine(EngineKind kind, std::vector<std::string> command) {
  return {.kind = kind, .command = std::move(command), .upstream = {.port = 5801}};
}

TEST(Presets, KnowEnginesByTheirCommands) {
  EXPECT_EQ(guess_kind({"vllm", "serve", "x"}), EngineKind::kVllm);
  EXPECT_EQ(guess_kind({"/opt/venv/bin/vllm", "serve", "x"}), EngineKind::kVllm);
  EXPECT_EQ(guess_kind({"python", "-m", "vllm.entrypoints.openai.api_server"}), EngineKind::kVllm);
  EXPECT_EQ(guess_kind({"python3", "-m", "sglang.launch_server"}), EngineKind::kSglang);
  EXPECT_EQ(guess_kind({"env", "A=1", "/app/llama-server-b99"}), EngineKind::kLlamaServer);
  EXPECT_EQ(guess_kind({"ollama", "serve"}), EngineKind::kOllama);
  EXPECT_EQ(guess_kind({"whisper-server"}), EngineKind::kGeneric);
  EXPECT_EQ(guess_kind({}), EngineKind::kGeneric);
}

TEST(Presets, MakeCommandLines) {
  EXPECT_THAT(preset_command(EngineKind::kLlamaServer, "/m/x.gguf", "x", 9),
              ElementsAre("llama-server", "-m", "/m/x.gguf", "--host", "127.0.0.1", "--port", "9"));
  EXPECT_THAT(preset_command(EngineKind::kLlamaServer, "org/x", "x", 9), Contains("-hf"));
  const auto vllm = preset_command(EngineKind::kVllm, "org/x", "x", 9);
  EXPECT_EQ(guess_kind(vllm), EngineKind::kVllm);
  EXPECT_EQ(guess_kind(preset_command(EngineKind::kSglang, "org/x", "x", 9)), EngineKind::kSglang);
  EXPECT_THAT(preset_command(EngineKind::kOllama, "org/x", "x", 9), ElementsAre("ollama", "serve"));
}

TEST(Presets, CommandLinesOfOursLetEnginesSleepOnAccelerators) {
  EngineConfig gpu = engine(EngineKind::kVllm, preset_command(EngineKind::kVllm, "x", "x", 9));
  apply_preset(gpu, "x", "x", EngineMemory::kCounted);
  EXPECT_EQ(std::count(gpu.command.begin(), gpu.command.end(), "--enable-sleep-mode"), 1);
  EXPECT_EQ(gpu.suspend.front(), SuspendLevel::kSleep);
  apply_preset(gpu, "x", "x", EngineMemory::kCounted);
  EXPECT_EQ(std::count(gpu.command.begin(), gpu.command.end(), "--enable-sleep-mode"), 1);
  EngineConfig host = engine(EngineKind::kVllm, preset_command(EngineKind::kVllm, "x", "x", 9));
  apply_preset(host, "x", "x", EngineMemory::kHost);
  EXPECT_THAT(host.command, Not(Contains("--enable-sleep-mode")));
  EXPECT_THAT(host.suspend, ElementsAre(SuspendLevel::kStop));
  EXPECT_THAT(host.env, IsEmpty());
}

TEST(Presets, AnEngineSleepsOnlyWhenItsCommandLetsIt) {
  EngineConfig sleeper = engine(EngineKind::kVllm, {"vllm", "serve", "x", "--enable-sleep-mode"});
  apply_preset(sleeper, "", "x", EngineMemory::kCounted);
  EXPECT_THAT(sleeper.suspend,
              ElementsAre(SuspendLevel::kSleep, SuspendLevel::kDeepSleep, SuspendLevel::kStop));
  EXPECT_THAT(sleeper.env, ElementsAre(Pair("VLLM_SERVER_DEV_MODE", "1")));
  EngineConfig insomniac = engine(EngineKind::kVllm, {"vllm", "serve", "x"});
  apply_preset(insomniac, "", "x", EngineMemory::kCounted);
  EXPECT_THAT(insomniac.suspend, ElementsAre(SuspendLevel::kStop));
  EXPECT_THAT(insomniac.env, IsEmpty());
  EngineConfig deep = engine(EngineKind::kVllm, {"vllm", "serve", "x", "--enable-sleep-mode"});
  deep.suspend = {SuspendLevel::kDeepSleep, SuspendLevel::kStop};
  apply_preset(deep, "", "x", EngineMemory::kCounted);
  EXPECT_THAT(deep.env, ElementsAre(Pair("VLLM_SERVER_DEV_MODE", "1")));
}

TEST(Presets, SglangSleepsOnlyWhereItsWeightsAreKept) {
  EngineConfig whole =
      engine(EngineKind::kSglang, preset_command(EngineKind::kSglang, "x", "x", 9));
  apply_preset(whole, "x", "x", EngineMemory::kCounted);
  EXPECT_THAT(whole.suspend, ElementsAre(SuspendLevel::kSleep, SuspendLevel::kStop));
  EngineConfig forgetful = engine(
      EngineKind::kSglang, {"python3", "-m", "sglang.launch_server", "--enable-memory-saver"});
  apply_preset(forgetful, "", "x", EngineMemory::kCounted);
  EXPECT_THAT(forgetful.suspend, ElementsAre(SuspendLevel::kStop));
}

TEST(Presets, WhatTheUserSaysStays) {
  EngineConfig own = engine(EngineKind::kVllm, {"vllm", "serve", "x", "--enable-sleep-mode"});
  own.suspend = {SuspendLevel::kFreeze, SuspendLevel::kSleep, SuspendLevel::kStop};
  own.env = {{"VLLM_SERVER_DEV_MODE", "0"}};
  own.served_name = "mine";
  apply_preset(own, "org/x", "x", EngineMemory::kCounted);
  EXPECT_THAT(own.suspend,
              ElementsAre(SuspendLevel::kFreeze, SuspendLevel::kSleep, SuspendLevel::kStop));
  EXPECT_THAT(own.env, ElementsAre(Pair("VLLM_SERVER_DEV_MODE", "0")));
  EXPECT_EQ(own.served_name, "mine");
}

TEST(Presets, MappedWeightsAreReclaimedWhereTheyAreInThisMachinesMemory) {
  const std::vector<std::string> command{"llama-server", "-m", "x.gguf"};
  EngineConfig host = engine(EngineKind::kLlamaServer, command);
  apply_preset(host, "", "x", EngineMemory::kHost);
  EXPECT_THAT(host.suspend, ElementsAre(SuspendLevel::kReclaim, SuspendLevel::kStop));
  EngineConfig gpu = engine(EngineKind::kLlamaServer, command);
  apply_preset(gpu, "", "x", EngineMemory::kCounted);
  EXPECT_THAT(gpu.suspend, ElementsAre(SuspendLevel::kStop));
  EngineConfig locked = engine(EngineKind::kLlamaServer, {"llama-server", "--mlock"});
  apply_preset(locked, "", "x", EngineMemory::kHost);
  EXPECT_THAT(locked.suspend, ElementsAre(SuspendLevel::kStop));
}

TEST(Presets, WhatCannotSleepIsSavedByTheDriverOfItsOnlyGpu) {
  EngineConfig alone = engine(EngineKind::kLlamaServer, {"llama-server", "-m", "x.gguf"});
  apply_preset(alone, "", "x", EngineMemory::kGpu);
  EXPECT_THAT(alone.suspend, ElementsAre(SuspendLevel::kCheckpoint, SuspendLevel::kStop));
  EngineConfig on_two = engine(EngineKind::kVllm, {"vllm", "serve", "x"});
  on_two.further_devices = {"gpu1"};
  apply_preset(on_two, "", "x", EngineMemory::kGpu);
  EXPECT_THAT(on_two.suspend, ElementsAre(SuspendLevel::kStop));
  EngineConfig sleeper = engine(EngineKind::kVllm, {"vllm", "serve", "x", "--enable-sleep-mode"});
  apply_preset(sleeper, "", "x", EngineMemory::kGpu);
  EXPECT_THAT(sleeper.suspend,
              ElementsAre(SuspendLevel::kSleep, SuspendLevel::kDeepSleep, SuspendLevel::kStop));
}

TEST(Presets, TritonUnloadsItsModelWhereItMay) {
  EngineConfig explicit_mode = engine(EngineKind::kTriton,
                                      {"python3",
                                       "/opt/tritonserver/python/openai/openai_frontend/main.py",
                                       "--model-control-mode",
                                       "explicit"});
  EXPECT_EQ(guess_kind(explicit_mode.command), EngineKind::kTriton);
  apply_preset(explicit_mode, "", "x", EngineMemory::kCounted);
  EXPECT_THAT(explicit_mode.suspend, ElementsAre(SuspendLevel::kDeepSleep, SuspendLevel::kStop));
  EXPECT_EQ(explicit_mode.served_name, "x");
  EngineConfig all = engine(EngineKind::kTriton, {"main.py", "--model-control-mode=poll"});
  all.served_name = "llama";
  apply_preset(all, "", "x", EngineMemory::kCounted);
  EXPECT_THAT(all.suspend, ElementsAre(SuspendLevel::kStop));
  EXPECT_EQ(all.served_name, "llama");
  EXPECT_EQ(preset(EngineKind::kTriton).health_path, "/health/ready");
  EXPECT_THAT(preset_command(EngineKind::kTriton, "p", "x", 9), IsEmpty());
}

TEST(Presets, TensorRtLlmIsStartedByItsOwnProgram) {
  const auto command = preset_command(EngineKind::kTensorRtLlm, "org/x", "x", 9);
  EXPECT_THAT(command, ElementsAre("trtllm-serve", "org/x", "--host", "127.0.0.1", "--port", "9"));
  EXPECT_EQ(guess_kind(command), EngineKind::kTensorRtLlm);
  EngineConfig served = engine(EngineKind::kTensorRtLlm, command);
  apply_preset(served, "org/x", "x", EngineMemory::kCounted);
  EXPECT_THAT(served.suspend, ElementsAre(SuspendLevel::kStop));
  EngineConfig alone = engine(EngineKind::kTensorRtLlm, command);
  apply_preset(alone, "org/x", "x", EngineMemory::kGpu);
  EXPECT_THAT(alone.suspend, ElementsAre(SuspendLevel::kCheckpoint, SuspendLevel::kStop));
}

TEST(Presets, OllamaIsToldItsAddressAndAskedForItsOwnName) {
  EngineConfig ollama = engine(EngineKind::kOllama, {"ollama", "serve"});
  apply_preset(ollama, "qwen3:8b", "big", EngineMemory::kCounted);
  EXPECT_THAT(ollama.env, Contains(Pair("OLLAMA_HOST", "127.0.0.1:5801")));
  EXPECT_EQ(ollama.served_name, "qwen3:8b");
}

}  // namespace
}  // namespace heddle::config
