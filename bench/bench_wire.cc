// What the messages of every step cost on the wire: encoding and decoding together, as a worker and
// serve do them.
#include <cstdint>
#include <string>
#include <utility>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "rpc/messages.h"

namespace {

using namespace heddle;

void round_trip(benchmark::State& state, const rpc::ToServe& message) {
  std::size_t bytes = 0;
  for (auto _ : state) {
    const std::string encoded = rpc::encode(message);
    bytes = encoded.size();
    auto decoded = rpc::decode_to_serve(encoded);
    HEDDLE_CHECK(decoded.has_value());
    benchmark::DoNotOptimize(decoded);
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}

/// The tokens of one step of so many sequences.
void tokens(benchmark::State& state) {
  core::TokensProduced produced;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    produced.tokens.push_back({.request = RequestId(100'000 + static_cast<std::uint64_t>(i)),
                               .position = 300 + i,
                               .token = static_cast<TokenId>(1000 + 997 * i)});
  }
  round_trip(state, {.epoch = WorkerEpoch(3), .body = core::WorkerReport(std::move(produced))});
}
BENCHMARK(tokens)->Arg(1)->Arg(32)->Arg(256);

/// The same, with five log probabilities for each.
void logprobs(benchmark::State& state) {
  core::TokensProduced produced;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    core::TokenEvent token{.request = RequestId(100'000 + static_cast<std::uint64_t>(i)),
                           .position = 300 + i,
                           .token = static_cast<TokenId>(1000 + 997 * i)};
    for (int j = 0; j < 6; ++j) {
      token.details.logprobs.push_back(
          {.token = 1000 * j, .logprob = -0.5F * static_cast<float>(j)});
    }
    produced.tokens.push_back(std::move(token));
  }
  round_trip(state, {.epoch = WorkerEpoch(3), .body = core::WorkerReport(std::move(produced))});
}
BENCHMARK(logprobs)->Arg(32);

/// The report of a device with so many models.
void device_report(benchmark::State& state) {
  core::DeviceReport report{.version = 7, .usage = {.total = 30'000, .free = 1200, .version = 99}};
  report.usage.by_kind[0] = {.reserved = 8000, .held = 8000};
  report.usage.by_kind[3] = {.reserved = 12'000, .held = 11'000};
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    report.models.push_back({.model = ModelId(static_cast<std::uint64_t>(i)),
                             .residency = core::Residency::kServing,
                             .kv_pages = 300 * i,
                             .sequences = 20,
                             .sequences_admitted = 12,
                             .complete = true});
  }
  round_trip(state, {.epoch = WorkerEpoch(3), .body = core::WorkerReport(std::move(report))});
}
BENCHMARK(device_report)->Arg(1)->Arg(16);

/// A request on its way to a worker, with a prompt of so many tokens.
void submit(benchmark::State& state) {
  core::Submit message{
      .request = RequestId(100'000), .model = ModelId(4), .client = 0x1234'5678'9abc'def0};
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    message.prompt.push_back(static_cast<TokenId>(i * 7919 % 150'000));
  }
  message.choices.push_back({.params = {.temperature = 0.7F,
                                        .seed = 0xfeed'5eed'0123'4567,
                                        .max_tokens = 512,
                                        .stop_tokens = {151'643, 151'645}}});
  const rpc::ToWorker sent = core::WorkerMessage(std::move(message));
  std::size_t bytes = 0;
  for (auto _ : state) {
    const std::string encoded = rpc::encode(sent);
    bytes = encoded.size();
    auto decoded = rpc::decode_to_worker(encoded);
    HEDDLE_CHECK(decoded.has_value());
    benchmark::DoNotOptimize(decoded);
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(submit)->Arg(32)->Arg(4096);

}  // namespace
