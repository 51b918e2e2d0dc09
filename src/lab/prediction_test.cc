#include "lab/prediction.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/test_places.h"
#include "lab/shots.h"
#include "lab/summary.h"

namespace heddle::lab {
namespace {

using namespace std::chrono_literals;

/// Two models, a device that holds one of them behind a link on which each takes about a second.
constexpr const char* kLab = R"(
config:
  host: {memory: 16MiB}
  devices:
    - {name: a, memory: 3MiB, page: 64KiB, load_bandwidth: 1200kB/s, pace: {step: 20ms}}
  models:
    adder: {path: MODELS/adder, slo: {ttft: 600ms, tpot: 60ms}}
    sorter: {path: MODELS/sorter, slo: {ttft: 600ms, tpot: 60ms}}
policies:
  roomy:
    devices:
      - {name: a, memory: 12MiB, page: 64KiB, load_bandwidth: 1200kB/s, pace: {step: 20ms}}
  small: {}
trace: {rate: 1, duration: 60s, input_tokens: 64..200, output_tokens: 4..16}
warmup: 10s
)";

LabFile lab_file(std::string text = kLab) {
  const std::string models = std::filesystem::path(places::kSources) / "models";
  for (std::size_t at = text.find("MODELS"); at != std::string::npos; at = text.find("MODELS")) {
    text.replace(at, 6, models);
  }
  const Result<LabFile> lab = parse_lab_file(text,
                                             "lab.yaml",
                                             [](const std::string&) { return std::nullopt; },
                                             {.cores = {0, 1}, .memory = 1U << 30U});
  EXPECT_TRUE(lab.has_value()) << (lab ? "" : lab.error().message);
  return *lab;
}

/// As if it had been measured.
Constants constants_of(const LabFile& lab) {
  Constants constants;
  for (const std::string& name : model_names(lab)) {
    constants[name].calibration.copy_alone = 1.2e6;
    constants[name].fit = {.fixed = 2e-3, .flops = 1e10};
  }
  return constants;
}

/// Four hosts, none of which has the models, and whose links take more than a second for one.
constexpr const char* kCold = R"(
cold: true
hosts: {h1: {}, h2: {}, h3: {}, h4: {}}
config:
  host: {memory: 64MiB, nic: 1MB/s}
  devices:
    - {name: a, memory: 12MiB, page: 64KiB, pace: {step: 20ms}}
  models:
    one: {path: MODELS/adder, dtype: float32, slo: {ttft: 500ms}}
    two: {path: MODELS/sorter, dtype: float32, slo: {ttft: 500ms}}
policies:
  several: {}
  alone: {models: {one: {cold_start_hosts: 1}, two: {cold_start_hosts: 1}}}
trace: {rate: 1, duration: 60s, input_tokens: 16, output_tokens: 40}
)";

TEST(PredictRun, HostsThatFetchTogetherAnswerSooner) {
  const LabFile lab = lab_file(kCold);
  const std::vector<bench::Shot> shots{
      {.at = 1s, .model = 0, .input_tokens = 16, .output_tokens = 200},
      {.at = 20s, .model = 1, .input_tokens = 16, .output_tokens = 40},
      {.at = 40s, .model = 0, .input_tokens = 16, .output_tokens = 40}};
  const Constants constants = constants_of(lab);
  const Result<LabRun> several = predict_run(lab, lab.policies[0], 0, shots, constants);
  const Result<LabRun> alone = predict_run(lab, lab.policies[1], 0, shots, constants);
  ASSERT_TRUE(several && alone);
  ASSERT_EQ(several->rows.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(several->rows[i].error, "");
    EXPECT_EQ(several->rows[i].completion_tokens, i == 0 ? 200 : 40);
    const double first = to_seconds(several->rows[i].first - several->rows[i].due);
    const double first_alone = to_seconds(alone->rows[i].first - alone->rows[i].due);
    if (i < 2) {
      EXPECT_GT(first_alone, 1.0) << "1.4 MB less what the link makes up for";
      EXPECT_LT(first, 0.6 * first_alone);
    } else {
      EXPECT_LT(first, 0.1) << "it is there";
    }
  }
}

TEST(PredictRun, TellsWhatMemoryIsWorth) {
  const LabFile lab = lab_file();
  const Constants constants = constants_of(lab);
  const Result<std::vector<bench::Shot>> shots = take_shots(lab, {}, 0);
  ASSERT_TRUE(shots.has_value());
  std::vector<LabRun> runs;
  for (const LabPolicy& policy : lab.policies) {
    Result<LabRun> run = predict_run(lab, policy, 0, *shots, constants);
    ASSERT_TRUE(run.has_value()) << run.error().message;
    EXPECT_FALSE(run->moments.empty());
    EXPECT_GT(run->rows.size(), 20U);
    EXPECT_LT(run->rows.size(), shots->size());
    for (const bench::Row& row : run->rows) {
      EXPECT_EQ(row.error, "");
      EXPECT_GE(row.due, lab.warmup);
    }
    runs.push_back(std::move(run).value());
  }
  const std::vector<PolicySummary> policies = summarise(runs, objectives(lab));
  const auto of = [&](std::size_t policy, Figure figure) {
    return policies.at(policy).values(figure).at(0);
  };
  EXPECT_EQ(of(0, Figure::kLoads), 0) << "both had come before the warm-up was over";
  EXPECT_EQ(of(0, Figure::kAttainment), 1);
  EXPECT_GT(of(1, Figure::kLoads), 5);
  EXPECT_LT(of(1, Figure::kAttainment), 0.9);
  EXPECT_GT(of(1, Figure::kTtftP95), 4 * of(0, Figure::kTtftP95));
}

TEST(PredictRun, KnowsClustersOfSeveralHosts) {
  const LabFile lab = lab_file("hosts: {h1: {}, h2: {}}" + std::string(kLab));
  const Constants constants = constants_of(lab);
  const Result<std::vector<bench::Shot>> shots = take_shots(lab, {}, 0);
  ASSERT_TRUE(shots.has_value());
  const Result<LabRun> run = predict_run(lab, lab.policies[1], 0, *shots, constants);
  ASSERT_TRUE(run.has_value()) << run.error().message;
  EXPECT_EQ(run->device_pages, (std::vector<std::int64_t>{48, 48}));
  EXPECT_GT(run->rows.size(), 20U);
  for (const bench::Row& row : run->rows) {
    EXPECT_EQ(row.error, "");
  }
  EXPECT_EQ(summarise({*run}, objectives(lab))[0].values(Figure::kLoads).at(0), 0)
      << "each host has one of the models since the warm-up, where one device takes turns";
  const Counters& last = run->moments.back().second;
  EXPECT_GT(last.total("heddle_worker_steps_total", {{"device", "h1/a"}}), 0);
  EXPECT_GT(last.total("heddle_worker_steps_total", {{"device", "h2/a"}}), 0);
  const Result<LabRun> again = predict_run(lab, lab.policies[1], 0, *shots, constants);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->rows.back().ended, run->rows.back().ended);
}

/// Two engines and a model of heddle's own on one device, asked in turn; one of the engines is
/// awake at a time.
const std::string kWithEngines = R"(
config:
  host: {memory: 16MiB}
  devices:
    - {name: a, memory: 52MiB, page: 64KiB, load_bandwidth: 1200kB/s, pace: {step: 20ms}}
  models:
    chat:
      {cmd: "server --port ${PORT}", engine: vllm, memory: 32MiB, suspend: [sleep],
       slo: {ttft: 200ms}}
    own: {path: MODELS/adder, slo: {ttft: 600ms}}
    code:
      {cmd: "server --port ${PORT}", engine: vllm, memory: 32MiB, suspend: [sleep],
       slo: {ttft: 200ms}}
  planner: {policy: heddle, period: 250ms, window: 4s, day: 12s}
policies:
  roomy: {devices: [{name: a, memory: 128MiB, page: 64KiB, pace: {step: 20ms}}]}
  small: {}
  reactive: {planner: {policy: reactive}}
trace: {rate: 0.25, duration: 108s, cv: 0.05, wave: {period: 12s, in_turn: true, square: true},
        input_tokens: 64, output_tokens: 4}
warmup: 48s
)";

Constants with_engines(const LabFile& lab) {
  Constants constants = constants_of(lab);
  for (const char* name : {"chat", "code"}) {
    constants[name].engine = {
        .start = 3s,
        .stop = 20ms,
        .memory = 30U << 20U,
        .suspend = {{spec::SuspendLevel::kSleep, {.out = 50ms, .in = 1s, .memory = 12U << 20U}}},
        .first_token = 50ms,
        .prompt_token = 100us,
        .token = 10ms};
  }
  return constants;
}

TEST(PredictRun, EnginesComeByForecastOrWhenTheyAreAskedFor) {
  const LabFile lab = lab_file(kWithEngines);
  const Constants constants = with_engines(lab);
  const Result<std::vector<bench::Shot>> shots = take_shots(lab, {}, 0);
  ASSERT_TRUE(shots.has_value());
  std::map<std::string, std::vector<Duration>> firsts;
  for (const LabPolicy& policy : lab.policies) {
    const Result<LabRun> run = predict_run(lab, policy, 0, *shots, constants);
    ASSERT_TRUE(run.has_value()) << run.error().message;
    for (const bench::Row& row : run->rows) {
      EXPECT_EQ(row.error, "") << policy.name;
      EXPECT_EQ(row.completion_tokens, 4);
      if (row.model != 1) {
        firsts[policy.name].push_back(row.first - row.due);
        EXPECT_EQ(row.last - row.first, 30ms);
      }
    }
    std::ranges::sort(firsts[policy.name]);
    const Counters& last = run->moments.back().second;
    EXPECT_EQ(last.total("heddle_engine_starts_total"), 2) << policy.name;
  }
  const auto median = [&](const std::string& policy) {
    const std::vector<Duration>& all = firsts.at(policy);
    return all.at(all.size() / 2);
  };
  EXPECT_GE(firsts.at("roomy").size(), 8U);
  EXPECT_LT(firsts.at("roomy").back(), 60ms) << "both stay: 50 ms, and 0.1 ms for each of 64";
  EXPECT_LT(median("small"), 60ms) << "it was woken by forecast";
  EXPECT_GT(firsts.at("reactive").front(), 1s) << "it is woken when it is asked for";
}

TEST(PredictRun, SaysWhichEnginesCannotBePredicted) {
  const auto error = [](std::string text, const std::string& what, const std::string& with) {
    text.replace(text.find(what), what.size(), with);
    const LabFile lab = lab_file(text);
    const Result<LabRun> run = predict_run(lab, lab.policies[0], 0, {}, with_engines(lab));
    return run.has_value() ? std::string() : run.error().message;
  };
  EXPECT_EQ(error(kWithEngines, "trace:", "hosts: {h1: {}, h2: {}}\ntrace:"),
            "chat: external engines are predicted on one host, and not on several");
  EXPECT_EQ(error(kWithEngines, "memory: 32MiB", "memory: 32MiB, kv: elastic, kv_least: 4MiB"),
            "chat: engines with elastic KV are not predicted (kv: elastic)");
}

TEST(PredictRun, HostsOnWhichAModelTakesOtherMemoryCannotBePredicted) {
  const LabFile lab = lab_file(R"(
hosts:
  h1: {}
  h2: {devices: [{name: a, memory: 48MiB, page: 128KiB}]}
config:
  host: {memory: 16MiB}
  devices: [{name: a, memory: 3MiB, page: 64KiB}]
  models:
    adder: {path: MODELS/adder}
trace: {rate: 1, duration: 60s, input_tokens: 64..200, output_tokens: 4..16}
)");
  const Result<LabRun> run = predict_run(lab, lab.policies[0], 0, {}, constants_of(lab));
  ASSERT_FALSE(run.has_value());
  EXPECT_NE(run.error().message.find("takes other memory on h2 than on h1"), std::string::npos);
}

TEST(PredictRun, KnowsModelsThatAreCutOverDevices) {
  const LabFile lab = lab_file(R"(
config:
  host: {memory: 16MiB}
  devices:
    - {name: a, memory: 3MiB, page: 64KiB, load_bandwidth: 1200kB/s, pace: {step: 20ms}}
    - {name: b, memory: 3MiB, page: 64KiB, load_bandwidth: 1200kB/s, pace: {step: 20ms}}
  models:
    adder: {path: MODELS/adder, tensor_parallel: 2, slo: {ttft: 800ms, tpot: 60ms}}
    sorter: {path: MODELS/sorter, slo: {ttft: 800ms, tpot: 60ms}}
trace: {rate: 1, duration: 60s, input_tokens: 64..200, output_tokens: 4..16}
warmup: 10s
)");
  Constants constants = constants_of(lab);
  constants["adder"].exchange = {.ranks = 2, .meet = 1e-5, .number = 1e-8};
  const Result<std::vector<bench::Shot>> shots = take_shots(lab, {}, 0);
  ASSERT_TRUE(shots.has_value());
  const Result<LabRun> run = predict_run(lab, lab.policies[0], 0, *shots, constants);
  ASSERT_TRUE(run.has_value()) << run.error().message;
  std::set<std::size_t> asked;
  for (const bench::Row& row : run->rows) {
    EXPECT_EQ(row.error, "");
    asked.insert(row.model);
  }
  EXPECT_EQ(asked.size(), 2U);
}

// The same requests, as a forecast that is early or late within a window loads at other times.
TEST(PredictRun, ASeedBeginsSomewhereInAWindowAndAlwaysThere) {
  const LabFile lab = lab_file(R"(
config:
  host: {memory: 16MiB}
  devices:
    - {name: a, memory: 3MiB, page: 64KiB, load_bandwidth: 1200kB/s, pace: {step: 20ms}}
  models:
    adder: {path: MODELS/adder}
    sorter: {path: MODELS/sorter}
  planner: {policy: heddle, period: 250ms, window: 3s, day: 12s}
trace: {rate: 2, duration: 60s, wave: {period: 12s, in_turn: true, square: true},
        input_tokens: 64, output_tokens: 4}
)");
  const Constants constants = constants_of(lab);
  const Result<std::vector<bench::Shot>> shots = take_shots(lab, {}, 0);
  ASSERT_TRUE(shots.has_value());
  const auto firsts = [&](std::int64_t seed, std::int64_t play = 0) {
    const Result<LabRun> run = predict_run(lab, lab.policies[0], seed, *shots, constants, play);
    std::vector<Duration> times;
    for (const bench::Row& row : run.value().rows) {
      times.push_back(row.first);
    }
    return times;
  };
  const std::vector<Duration> first = firsts(0);
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(firsts(0), first);
  EXPECT_NE(firsts(1), first);
  EXPECT_NE(firsts(0, 1), first) << "another of the runs that could have been";
  EXPECT_EQ(firsts(0, 1), firsts(0, 1));
}

TEST(PredictRun, NamesTheModelThatCannotBeOpened) {
  LabFile lab = lab_file();
  const Constants constants = constants_of(lab);
  lab.policies[0].config.models[1].path = "/nowhere";
  const Result<LabRun> run = predict_run(lab, lab.policies[0], 0, {}, constants);
  ASSERT_FALSE(run.has_value());
  EXPECT_NE(run.error().message.find("/nowhere"), std::string::npos) << run.error().message;
}

}  // namespace
}  // namespace heddle::lab
