#include "lab/co_running.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/clock.h"

#include <unistd.h>

namespace heddle::lab {

namespace {

/// A mean needs more steps than a median, and more time than a scheduler's slices.
constexpr std::int64_t kStepsPerRepeat = 4;
constexpr auto kTimePerRepeat = std::chrono::milliseconds(60);
constexpr int kNicer = 10;
constexpr double kNano = 1e9;
constexpr std::string_view kDone = "+";

/// An engine that does one thing over and over.
class BusyEngine {
 public:
  BusyEngine(DeviceBench& bench, const EngineLoad& load) : bench_(bench), load_(load) {
    ids_.resize(static_cast<std::size_t>(load.sequences));
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  /// The next step; sequences that are at the end of their memory begin again first.
  Result<Duration> step() {
    if (running_ && position_ + load_.tokens >= bench_.model().max_position) {
      if (const Result<void> ended = end(); !ended) {
        return ended.error();
      }
    }
    for (const bool fresh : {!running_, true}) {
      const Result<void> ready = fresh ? begin() : Result<void>();
      const auto took =
          ready ? bench_.step(ids_, load_.tokens) : Result<std::optional<Duration>>(ready.error());
      if (!took) {
        return took.error();
      }
      if (took->has_value()) {
        position_ += load_.tokens;
        const Result<void> ended = load_.tokens > 1 ? end() : Result<void>();  // A prompt is read.
        return ended ? Result<Duration>(**took) : ended.error();
      }
    }
    return no_room();
  }

  /// Its sequences leave.
  Result<void> end() {
    Result<void> done;
    for (const std::int64_t id : ids_) {
      done = running_ && done ? bench_.remove(id) : done;
    }
    running_ = false;
    return done;
  }

 private:
  Result<void> begin() {
    if (const Result<void> ended = end(); !ended) {
      return ended;
    }
    running_ = true;
    position_ = load_.context;
    if (load_.tokens > 1) {
      return bench_.add(ids_[0], load_.tokens);
    }
    const Result<bool> fits = bench_.prefill(ids_, load_.context);
    if (!fits) {
      return fits.error();
    }
    return *fits ? Result<void>() : no_room();
  }
  [[nodiscard]] Error no_room() const {
    return {.code = Code::kResourceExhausted,
            .message = "calibrate: half of the memory has no room for a " + load_name(load_)};
  }

  DeviceBench& bench_;
  EngineLoad load_;
  std::vector<std::int64_t> ids_{};
  bool running_ = false;
  std::int64_t position_ = 0;  ///< Of the next token.
};

/// A device with the model on it.
Result<std::unique_ptr<DeviceBench>> make_bench(CalibrationOptions options, std::uint64_t memory) {
  options.memory = memory;
  auto bench = DeviceBench::create(options, {.images = 1});
  if (bench) {
    const Result<Duration> copied = (*bench)->copy(DeviceBench::kServed, nullptr);
    return copied ? std::move(bench) : copied.error();
  }
  return bench;
}

/// Says that it runs, and does steps until something is said; what one took in the mean [s].
Result<double> run_until_told(DeviceBench& bench, const EngineLoad& load, const Line& line) {
  BusyEngine engine(bench, load);
  Result<Duration> took = engine.step();  // The first also prepares.
  if (!took) {
    return took.error();
  }
  (void)line.say(std::string(kDone));
  double sum = 0;
  std::int64_t steps = 0;
  for (; took && (steps == 0 || !line.heard()); ++steps) {
    took = engine.step();
    sum += took ? to_seconds(*took) : 0;
  }
  (void)line.hear();
  const Result<void> ended = engine.end();
  if (!took || !ended) {
    return took ? ended.error() : took.error();
  }
  return sum / static_cast<double>(steps);
}

/// Below normal, whatever shares the device: cores have niceness, and clients of MPS priorities.
void stand_below() {
  (void)::nice(kNicer);
  (void)::setenv("CUDA_MPS_CLIENT_PRIORITY", "1", 1);  // NOLINT(concurrency-mt-unsafe)
}

/// The engine's process: "begin BYTES", "run SEQUENCES TOKENS CONTEXT", "rest", "end". Answers are
/// "+", behind which may be a number, or what went wrong.
class Server {
 public:
  Server(const std::function<Result<CalibrationOptions>()>& device, const Line& line)
      : device_(device), line_(line) {}

  void serve() {
    while (const std::optional<std::string> heard = line_.hear()) {
      std::istringstream words(*heard);
      const Result<std::string> said = answer(words);
      (void)line_.say(said ? std::string(kDone) + *said : said.error().message);
    }
  }

 private:
  Result<std::string> answer(std::istringstream& words) {
    std::string verb;
    words >> verb;
    if (verb == "begin") {
      std::uint64_t memory = 0;
      words >> memory;
      const Result<CalibrationOptions> options = device_();
      auto made = options ? make_bench(*options, memory)
                          : Result<std::unique_ptr<DeviceBench>>(options.error());
      if (!made) {
        return made.error();
      }
      bench_ = std::move(*made);
    } else if (verb == "run" && bench_ != nullptr) {
      EngineLoad load;
      words >> load.sequences >> load.tokens >> load.context;
      const Result<double> mean = run_until_told(*bench_, load, line_);
      return mean ? Result<std::string>(std::to_string(*mean * kNano)) : mean.error();
    } else {
      bench_.reset();
    }
    return std::string();
  }

  const std::function<Result<CalibrationOptions>()>& device_;
  const Line& line_;
  std::unique_ptr<DeviceBench> bench_{};
};

/// As large as options and model allow.
std::vector<EngineLoad> loads_of(const CalibrationOptions& options, const spec::ModelSpec& model) {
  const std::int64_t most = std::min(step_tokens(options), model.max_position - 1);
  const std::int64_t context = std::min(
      {options.gpu ? std::int64_t{1024} : 32, options.max_context, model.max_position / 2});
  const std::int64_t many = std::min<std::int64_t>(options.gpu ? 64 : 16, step_tokens(options));
  const std::int64_t prompt = std::min<std::int64_t>(options.gpu ? 1024 : 256, most);
  return {{.sequences = 1, .context = context},
          {.sequences = many, .context = context},
          {.tokens = prompt}};
}

/// What a step takes in the mean [s], after one that does not count.
Result<double> mean_step(BusyEngine& engine, std::int64_t repeats) {
  const Instant began = steady_now();
  double sum = 0;
  std::int64_t steps = -1;
  while (steps < repeats * kStepsPerRepeat || steady_now() - began < repeats * kTimePerRepeat) {
    const Result<Duration> took = engine.step();
    if (!took) {
      return took.error();
    }
    sum += steps < 0 ? 0 : to_seconds(*took);
    ++steps;
  }
  return sum / static_cast<double>(steps);
}

/// Fills in what was measured with both running.
Result<void> time_together(DeviceBench& bench,
                           CoRunner& other,
                           std::int64_t repeats,
                           CoRunSample& sample) {
  if (const Result<void> runs = other.run(sample.other); !runs) {
    return runs;
  }
  BusyEngine engine(bench, sample.own);
  const Result<double> mean = mean_step(engine, repeats);
  const Result<double> others = other.rest();
  const Result<void> ended = engine.end();
  if (!mean || !others) {
    return mean ? others.error() : mean.error();
  }
  sample.together = *mean;
  sample.other_together = *others;
  return ended;
}

}  // namespace

std::string load_name(const EngineLoad& load) {
  return load.tokens > 1 ? "prefill of " + std::to_string(load.tokens)
                         : "decode of " + std::to_string(load.sequences);
}

CoRunner::CoRunner(std::function<Result<CalibrationOptions>()> device, Standing standing)
    : standing_(standing), process_([device = std::move(device), standing](const Line& line) {
        if (standing == Standing::kBelow) {
          stand_below();
        }
        Server(device, line).serve();
      }) {}

Result<std::string> CoRunner::ask(const std::string& what) {
  Result<std::string> answer = process_.ask(what);
  if (answer && !answer->starts_with(kDone)) {
    return Error{.code = Code::kUnavailable, .message = "beside this engine: " + *answer};
  }
  return answer ? answer->substr(kDone.size()) : answer;
}

Result<void> CoRunner::begin(std::uint64_t memory) {
  const auto said = ask("begin " + std::to_string(memory));
  return said ? Result<void>() : said.error();
}

Result<void> CoRunner::run(const EngineLoad& load) {
  const auto said = ask("run " + std::to_string(load.sequences) + " " +
                        std::to_string(load.tokens) + " " + std::to_string(load.context));
  return said ? Result<void>() : said.error();
}

Result<double> CoRunner::rest() {
  const auto said = ask("rest");
  return said ? Result<double>(std::strtod(said->c_str(), nullptr) / kNano) : said.error();
}

Result<void> CoRunner::end() {
  const auto said = ask("end");
  return said ? Result<void>() : said.error();
}

Result<std::vector<CoRunSample>> time_co_running(const CalibrationOptions& options,
                                                 CoRunner& other) {
  const std::uint64_t half = options.memory / options.page_bytes / 2 * options.page_bytes;
  auto bench = make_bench(options, half);
  if (!bench) {
    return bench.error();
  }
  std::vector<EngineLoad> loads;
  std::vector<double> alone;
  for (const EngineLoad& load : loads_of(options, (*bench)->model())) {
    BusyEngine engine(**bench, load);
    const Result<double> mean = mean_step(engine, options.repeats);
    const Result<void> ended = engine.end();
    if (mean) {
      loads.push_back(load);
      alone.push_back(*mean);
    } else if (mean.error().code != Code::kResourceExhausted) {
      return mean.error();
    }
    if (!ended) {
      return ended.error();
    }
  }
  Result<void> done = other.begin(half);
  std::vector<CoRunSample> samples;
  for (std::size_t own = 0; own < loads.size(); ++own) {
    for (std::size_t beside = 0; done && beside < loads.size(); ++beside) {
      CoRunSample sample{.own = loads[own],
                         .other = loads[beside],
                         .standing = other.standing(),
                         .alone = alone[own],
                         .other_alone = alone[beside]};
      done = time_together(**bench, other, options.repeats, sample);
      samples.push_back(sample);
    }
  }
  const Result<void> ended = other.end();
  if (!done || !ended) {
    return done ? ended.error() : done.error();
  }
  return samples;
}

}  // namespace heddle::lab
