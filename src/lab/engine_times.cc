#include "lab/engine_times.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "bench/run.h"
#include "external/blocking_pool.h"
#include "external/device_checkpoint.h"
#include "external/external_engine.h"
#include "external/memory_meter.h"
#include "external/process_set.h"
#include "lab/shots.h"

namespace heddle::lab {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kThreads = 2;
/// Requests of either length; the median counts.
constexpr std::size_t kAsks = 5;
constexpr std::int64_t kShortPrompt = 16;
constexpr std::int64_t kLongPrompt = 272;
constexpr std::int64_t kAnswer = 9;
constexpr Duration kAnswerPatience = std::chrono::seconds(60);

template <class T>
asio::awaitable<void> keep(asio::awaitable<T> work, std::optional<T>& outcome) {
  outcome = co_await std::move(work);
}

/// What `work` comes to; lets the loop run until then.
template <class T>
T wait_for(asio::io_context& loop, asio::awaitable<T> work) {
  std::optional<T> outcome;
  asio::co_spawn(loop, keep(std::move(work), outcome), [](const std::exception_ptr& error) {
    HEDDLE_CHECK(!error);
  });
  loop.restart();
  while (!outcome) {
    loop.run_one();
  }
  return std::move(*outcome);
}

external::EngineTools tools() {
  external::EngineTools tools{.blocking_pool = std::make_shared<external::BlockingPool>(kThreads),
                              .grouping = external::best_grouping()};
  if (Result<std::unique_ptr<external::DeviceMeter>> meter = external::open_nvml()) {
    tools.meter = std::move(*meter);
  }
  if (auto checkpoint = external::open_cuda_checkpoint()) {
    tools.checkpoint = std::move(*checkpoint);
  } else {
    tools.no_checkpoint = checkpoint.error().message;
  }
  return tools;
}

Duration median(std::vector<Duration> all) {
  std::ranges::sort(all);
  return all.empty() ? Duration{} : all[all.size() / 2];
}

/// Asks it, short prompts and long ones in turn.
Result<void> time_answers(const config::ModelConfig& model, EngineTimes& times) {
  std::vector<bench::Shot> shots;
  for (std::size_t i = 0; i < kAsks; ++i) {
    for (const std::int64_t prompt : {kShortPrompt, kLongPrompt}) {
      shots.push_back({.model = 0, .input_tokens = prompt, .output_tokens = kAnswer});
    }
  }
  const config::EngineConfig& engine = *model.engine;
  HttpAddress api = engine.upstream;
  api.base_path += "/v1";
  ShotList list(shots);
  const auto results =
      bench::run({.endpoint = std::move(api),
                  .api = bench::Api::kCompletions,
                  .models = {engine.served_name.empty() ? model.id : engine.served_name},
                  .concurrency = 1,
                  .patience = kAnswerPatience,
                  .ignore_eos = true},
                 list,
                 [](const bench::Progress&) {});
  if (!results) {
    return results.error();
  }
  std::vector<Duration> first_short;
  std::vector<Duration> first_long;
  std::vector<Duration> gaps;
  for (std::size_t i = 0; i < results->rows().size(); ++i) {
    const bench::Row& row = results->rows()[i];  // One after the other, so in the order of shots.
    if (!row.error.empty()) {
      return Error{.code = Code::kUnavailable, .message = row.error};
    }
    (i % 2 == 0 ? first_short : first_long).push_back(row.first - row.begun);
    if (row.completion_tokens > 1) {
      gaps.push_back((row.last - row.first) / (row.completion_tokens - 1));
    }
  }
  const Duration first = median(first_short);
  times.prompt_token =
      std::max(median(first_long) - first, Duration{}) / (kLongPrompt - kShortPrompt);
  times.first_token = std::max(first - kShortPrompt * times.prompt_token, Duration{});
  times.token = median(gaps);
  return {};
}

/// All that is asked of one life of it; it may run still when something failed.
Result<void> time_life(asio::io_context& loop,
                       const config::ModelConfig& model,
                       external::ExternalEngine& engine,
                       EngineTimes& times) {
  Instant began = steady_now();
  const Result<external::Holding> started = wait_for(loop, engine.start());
  if (!started) {
    return started.error();
  }
  times.start = steady_now() - began;
  if (const Result<void> asked = time_answers(model, times); !asked) {
    return asked;
  }
  for (const spec::SuspendLevel level : model.engine->suspend) {
    if (level == spec::SuspendLevel::kStop) {
      continue;
    }
    SuspensionTimes& way = times.suspend[level];
    began = steady_now();
    const Result<external::Holding> down = wait_for(loop, engine.suspend(level));
    way.out = steady_now() - began;
    began = steady_now();
    const Result<external::Holding> up = down ? wait_for(loop, engine.resume()) : down;
    if (!up) {
      return up.error();
    }
    way.in = steady_now() - began;
    way.memory = down->device_bytes;
    way.host = down->host_bytes;
    times.memory = std::max(times.memory, up->device_bytes);
  }
  times.memory = std::max(times.memory, started->device_bytes);
  return {};
}

}  // namespace

void declare_engine_times(config::Fields& f, EngineTimes& times) {
  f.duration({"start", "From its start to its first right answer."}, times.start);
  f.require("start", "say how long it takes to start, such as 20s");
  f.duration({"stop", "Until nothing of it is left."}, times.stop);
  f.bytes({"memory", "What it holds of all its devices while it runs."}, times.memory);
  f.require("memory", "say what it holds of its devices, such as 14GiB");
  f.duration({"first_token", "From a request to the first token."}, times.first_token);
  f.require("first_token", "say how long it takes to answer, such as 50ms");
  f.duration({"prompt_token", "Later for each token of the prompt."}, times.prompt_token);
  f.duration({"token", "From one token to the next."}, times.token);
  f.named_sections(
      {"suspend", "By level, what it takes to be suspended and to come back."},
      [&](const std::string& name, config::Fields& level) {
        const auto known = spec::suspend_level(name);
        SuspensionTimes way;
        level.duration({"out", "Until it is suspended."}, way.out);
        level.duration({"in", "Until it is back, and gives the right answer."}, way.in);
        level.require("in", "say how long it takes to come back, such as 1s");
        level.bytes({"memory", "What it keeps of all its devices."}, way.memory);
        level.bytes({"host", "What is saved of it in host memory."}, way.host);
        if (!known || *known == spec::SuspendLevel::kStop) {
          level.reject("in", "\"" + name + "\" is no level from which an engine comes back");
          return;
        }
        times.suspend[*known] = way;
      });
}

Result<EngineTimes> time_engine(const config::ModelConfig& model, bool accelerator) {
  asio::io_context loop(1);
  EngineTimes times;
  external::EngineTools with = tools();
  const bool metered = accelerator && with.meter != nullptr;
  external::ExternalEngine engine(
      loop.get_executor(), model.id, *model.engine, metered, std::move(with), [](const auto&) {});
  const Result<void> timed = time_life(loop, model, engine, times);
  const Instant began = steady_now();
  wait_for(loop, engine.stop());
  times.stop = steady_now() - began;
  if (!timed) {
    return Error{.code = timed.error().code,
                 .message = "measure the engine of " + model.id + ": " + timed.error().message};
  }
  return times;
}

}  // namespace heddle::lab
