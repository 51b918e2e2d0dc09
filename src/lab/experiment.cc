#include "lab/experiment.h"

#include <algorithm>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "bench/endpoint.h"
#include "lab/servers.h"
#include "lab/shots.h"
#include "lab/watch.h"
#include "spec/json_view.h"
#include "spec/json_writer.h"

namespace heddle::lab {

namespace {

using namespace std::chrono_literals;

constexpr Duration kStartPatience = 60s;
constexpr Duration kAskPatience = 30s;
constexpr Duration kStopPatience = 60s;
/// Whether a server is ready is asked over HTTP, as a load balancer would: it tells nobody.
constexpr Duration kReadyInterval = 20ms;
/// When one host has learnt what all models are, the others are about to.
constexpr Duration kLearning = 1s;

/// The tokens that a model's tokenizer makes of `text`.
Result<std::vector<TokenId>> tokenize(const HttpAddress& server,
                                      const std::string& model,
                                      const std::string& text) {
  spec::JsonWriter json;
  json.begin_object().key("model").string(model).key("prompt").string(text);
  json.key("add_special_tokens").boolean(false).end_object();
  const Result<std::string> answer = ask(server, "/tokenize", std::move(json).take(), kAskPatience);
  if (!answer) {
    return answer.error();
  }
  const Result<spec::Json> parsed = spec::parse_json(*answer, "the answer to /tokenize");
  if (!parsed) {
    return parsed.error();
  }
  std::vector<TokenId> tokens;
  for (const spec::Json& token : spec::items_at(*parsed, {"tokens"})) {
    const std::int64_t* id = token.as<std::int64_t>();
    tokens.push_back(id == nullptr ? 0 : static_cast<TokenId>(*id));
  }
  if (tokens.empty()) {
    return Error{.code = Code::kCorrupt, .message = "the answer to /tokenize has no \"tokens\""};
  }
  return tokens;
}

std::vector<std::int64_t> device_pages(const LabPolicy& policy, const Counters& counters) {
  std::vector<std::int64_t> pages;
  for (const LabDevice& device : devices_of(policy)) {
    pages.push_back(
        static_cast<std::int64_t>(counters.total("heddle_pages_total", {{"device", device.name}})));
  }
  return pages;
}

/// Whether the server is ready, and tells of every device; else what it said or which is missing.
Result<void> all_there(const LabPolicy& policy, const HttpAddress& server) {
  const Result<std::string> ready = ask(server, "/readyz", "", kAskPatience);
  const Result<std::string> told = ready ? ask(server, "/metrics", "", kAskPatience) : ready;
  if (!told) {
    return told.error();
  }
  const std::vector<std::int64_t> pages = device_pages(policy, Counters::parse(*told));
  const auto missing = std::find(pages.begin(), pages.end(), 0);
  if (missing != pages.end()) {
    const LabDevice device =
        devices_of(policy).at(static_cast<std::size_t>(missing - pages.begin()));
    return Error{.code = Code::kUnavailable,
                 .message = "the device " + device.name + " has not come"};
  }
  return {};
}

/// Whether some host knows each model, which of models that nobody has is learnt beside the start.
Result<void> all_known(const LabPolicy& policy, const HttpAddress& server) {
  const Result<std::string> told = ask(server, "/v1/models", "", kAskPatience);
  for (const config::ModelConfig& model : policy.config.models) {
    if (told && told->find("\"" + model.id + "\"") == std::string::npos) {
      return Error{.code = Code::kUnavailable,
                   .message = "no host knows what the model " + model.id + " is"};
    }
  }
  return told ? Result<void>() : Result<void>(told.error());
}

Result<void> wait_until_ready(const LabPolicy& policy, bool cold, const HttpAddress& server) {
  const Instant deadline = steady_now() + kStartPatience;
  for (;;) {
    Result<void> ready = all_there(policy, server);
    if (ready && cold) {
      ready = all_known(policy, server);
    }
    if (ready || steady_now() > deadline) {
      std::this_thread::sleep_for(ready && cold ? kLearning : Duration{});
      return ready;
    }
    std::this_thread::sleep_for(kReadyInterval);
  }
}

/// What was counted after the warm-up and by the end.
void take_counters(const std::vector<Sample>& samples,
                   Instant start,
                   Duration warmup,
                   const LabPolicy& policy,
                   LabRun& run) {
  const Counters* base = nullptr;
  for (const Sample& sample : samples) {
    const Duration at = sample.at - start;
    if (base == nullptr || at <= warmup) {
      base = &sample.counters;
    }
    run.moments.emplace_back(at, sample.counters);
  }
  if (base != nullptr) {
    run.counted = samples.back().counters.since(*base);
    run.device_pages = device_pages(policy, samples.back().counters);
  }
}

}  // namespace

std::vector<sim::Objective> objectives(const LabFile& lab) {
  std::vector<sim::Objective> all;
  for (const config::ModelConfig& model : lab.policies.front().config.models) {
    all.push_back({.ttft = model.slo.ttft, .tpot = model.slo.tpot});
  }
  return all;
}

Experiment::Experiment(const LabFile& lab, std::string program, std::string folder)
    : lab_(lab), program_(std::move(program)), folder_(std::move(folder)) {}

Result<void> Experiment::learn_tokenizers(const HttpAddress& server) {
  prompt_tokens_.clear();
  answer_tokens_.clear();
  for (const std::string& model : model_names(lab_)) {
    if (model_called(lab_.policies.front().config, model).engine) {
      prompt_tokens_.emplace_back();  // What its tokens are only the engine knows.
      answer_tokens_.emplace_back();
      continue;
    }
    Result<std::vector<TokenId>> words = tokenize(server, model, bench::PromptMaker::every_word());
    if (!words) {
      return words.error();
    }
    const Result<std::vector<TokenId>> digit = tokenize(server, model, "7");
    if (!digit) {
      return digit.error();
    }
    prompt_tokens_.push_back(std::move(words).value());
    answer_tokens_.push_back(digit->back());
  }
  return {};
}

Result<LabRun> Experiment::run(const LabPolicy& policy,
                               std::int64_t seed,
                               const std::vector<bench::Shot>& shots,
                               const std::function<void(const bench::Progress&)>& show) {
  const Duration window = policy.config.planner.window;
  const auto wait_for = [step = keeps_step(shots, window), window](Duration place) {
    if (step) {
      const Duration wall = std::chrono::system_clock::now().time_since_epoch();
      std::this_thread::sleep_for(until_place(place, wall, window));
    }
  };
  wait_for({});  // A window begins.
  auto servers = Servers::start(program_,
                                policy,
                                folder_ + "/" + policy.name + "-" + std::to_string(seed),
                                lab_.cold,
                                kStartPatience);
  if (!servers) {
    return servers.error();
  }
  Result<HttpAddress> api = bench::parse_endpoint((*servers)->url());
  if (!api) {
    return api.error();
  }
  HttpAddress root = *api;
  root.base_path.clear();
  const Result<void> ready = wait_until_ready(policy, lab_.cold, root);
  if (!ready) {
    return ready.error();
  }
  // In each run, so that no first request waits for its model's tokenizer.
  if (const Result<void> learned = learn_tokenizers(root); !learned) {
    return learned.error();
  }
  wait_for({});  // The next one does.
  wait_for(place_in_window(seed, window));
  LabRun run{.policy = policy.name, .seed = seed};
  Watch watch(root, kWatchInterval);
  ShotList list(shots);
  const Instant start = steady_now();
  const Result<bench::Results> results = bench::run({.endpoint = std::move(*api),
                                                     .api = bench::Api::kCompletions,
                                                     .models = model_names(lab_),
                                                     .patience = lab_.patience,
                                                     .ignore_eos = true,
                                                     .logprobs = lab_.check,
                                                     .seed = static_cast<std::uint64_t>(seed),
                                                     .prompt_tokens = prompt_tokens_,
                                                     .answer_tokens = answer_tokens_},
                                                    list,
                                                    show);
  if (!results) {
    return results.error();
  }
  if (results->rows().size() < shots.size()) {
    return Error{.code = Code::kCancelled, .message = "interrupted"};
  }
  take_counters(watch.finish(), start, lab_.warmup, policy, run);
  for (const bench::Row& row : results->rows()) {
    if (row.due >= lab_.warmup) {
      run.rows.push_back(row);
    }
  }
  run.span = results->span() - lab_.warmup;
  const Result<void> stopped = (*servers)->stop(kStopPatience);
  return stopped ? Result<LabRun>(std::move(run)) : stopped.error();
}

}  // namespace heddle::lab
