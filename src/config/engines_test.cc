#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"

namespace heddle::config {
namespace {

using spec::EngineKind;
using spec::SuspendLevel;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

const Machine kMachine{.cores = {0, 1}, .memory = (16ULL << 30U) + 5};

const std::string kTwoGpus =
    "devices: [{name: g, kind: external, memory: 2GiB}, {name: h, kind: external, memory: 1GiB}]\n";

Result<Config> parse(std::string_view text) {
  return parse_config(
      text,
      "/etc/heddle/heddle.yaml",
      [](const std::string& name) {
        return name.starts_with("OTEL_") ? std::nullopt : std::optional("value of " + name);
      },
      kMachine);
}

const EngineConfig& engine(const Result<Config>& config, const std::string& id) {
  for (const ModelConfig& model : config->models) {
    if (model.id == id) {
      return *model.engine;
    }
  }
  ADD_FAILURE() << "no model " << id;
  return *config->models.front().engine;
}

TEST(Engines, AreReadAsLlamaSwapReadsThem) {
  const Result<Config> config = parse(R"(
healthCheckTimeout: 500
unloadTimeout: 7
globalTTL: 60
sendLoadingState: true
macros: {server: "./bin/llama-server --port ${PORT}"}
models:
  big:
    cmd: |
      # the large one
      ${server} \
      -m 'a b.gguf'
    cmdStop: ../stop ${PID} ${PORT}
    env: [A=1, "B=x=y"]
    checkEndpoint: /ready
    useModelName: org/big
    ttl: -1
    unloadTimeout: 0
    filters:
      stripParams: "temperature, model,top_p ,, top_p"
      setParams: {seed: 7, stop: ["\n"], model: x}
      setParamsByID:
        "${MODEL_ID}:low": {reasoning_effort: low}
    metadata: {port: "${PORT}", a: [1, {b: no}]}
    timeouts: {responseHeader: 60}
    concurrencyLimit: 3
  small:
    {cmd: "run ${PORT}", checkEndpoint: none, ttl: 0, unloadTimeout: 3, sendLoadingState: false}
hooks: {on_startup: {preload: ["big:low", ghost]}}
)");
  ASSERT_TRUE(config) << config.error().message;
  const EngineConfig& big = engine(config, "big");
  EXPECT_THAT(big.command,
              ElementsAre("/etc/heddle/bin/llama-server", "--port", "5800", "-m", "a b.gguf"));
  EXPECT_EQ(big.kind, EngineKind::kLlamaServer);
  EXPECT_EQ(big.directory, "/etc/heddle");
  EXPECT_THAT(big.stop_command, ElementsAre("/etc/stop", "${PID}", "5800"));
  EXPECT_THAT(big.env, ElementsAre(Pair("A", "1"), Pair("B", "x=y")));
  EXPECT_EQ(big.upstream, (HttpAddress{.port = 5800}));
  EXPECT_EQ(big.health_path, "/ready");
  EXPECT_EQ(big.served_name, "org/big");
  EXPECT_EQ(big.start_timeout, 500s);
  EXPECT_EQ(big.stop_timeout, 7s);
  EXPECT_EQ(big.response_timeout, 60s);
  EXPECT_TRUE(big.loading_state);
  EXPECT_THAT(big.suspend, ElementsAre(SuspendLevel::kStop));
  EXPECT_THAT(big.filters.strip_params, ElementsAre("temperature", "top_p"));
  EXPECT_THAT(big.filters.set_params, ElementsAre(Pair("seed", "7"), Pair("stop", R"(["\n"])")));
  ASSERT_EQ(big.filters.set_params_by_id.size(), 1U);
  EXPECT_EQ(big.filters.set_params_by_id[0].first, "big:low");
  EXPECT_THAT(big.filters.set_params_by_id[0].second,
              ElementsAre(Pair("reasoning_effort", "\"low\"")));
  EXPECT_THAT(config->models[0].aliases, ElementsAre("big:low"));
  EXPECT_EQ(config->models[0].ttl, 60s);
  EXPECT_EQ(config->models[0].concurrency_limit, 3);
  EXPECT_EQ(config->models[0].metadata, R"({"port":5800,"a":[1,{"b":"no"}]})");
  EXPECT_EQ(config->models[1].ttl, 0s);
  EXPECT_EQ(engine(config, "small").upstream.port, 5801);
  EXPECT_EQ(engine(config, "small").health_path, "");
  EXPECT_EQ(engine(config, "small").stop_timeout, 3s);
  EXPECT_FALSE(engine(config, "small").loading_state);
  EXPECT_THAT(config->models[0].displaces, ElementsAre("small"));
  EXPECT_THAT(config->preload, ElementsAre("big"));
  EXPECT_THAT(config->warnings,
              testing::UnorderedElementsAre(HasSubstr("stripParams: \"model\""),
                                            HasSubstr("setParams: \"model\""),
                                            HasSubstr("\"ghost\" is no model")));
}

TEST(Engines, AloneGetADeviceOfAllMemoryAndNoCores) {
  const Result<Config> config = parse("models: {a: {cmd: 'run ${PORT}'}}");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->devices.size(), 1U);
  EXPECT_EQ(config->devices[0].name, "engines");
  EXPECT_EQ(config->devices[0].kind, DeviceKind::kExternal);
  EXPECT_THAT(config->devices[0].cores, IsEmpty());
  EXPECT_EQ(config->devices[0].memory, 16ULL << 30U);
  EXPECT_EQ(engine(config, "a").device, "engines");
}

TEST(Engines, BesideModelsOfOurOwnShareTheirDevice) {
  const Result<Config> config =
      parse("models: {a: {cmd: 'llama-server --port ${PORT}', memory: 2GiB}, n: {path: x}}");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->devices.size(), 1U);
  EXPECT_EQ(config->devices[0].kind, DeviceKind::kCpu);
  EXPECT_EQ(engine(config, "a").device, "cpu0");
  EXPECT_THAT(engine(config, "a").suspend,
              ElementsAre(SuspendLevel::kReclaim, SuspendLevel::kStop));
  EXPECT_THAT(config->models[0].displaces, IsEmpty());
}

TEST(Engines, OnAHostWithGpusThoseShareTheirMemoryAndCpuDevicesDoNot) {
  Machine machine = kMachine;
  machine.gpus = {{.name = "GPU", .memory = 80ULL << 30U}};
  const auto on = [&](const std::string& device) {
    return parse_config(
        "devices: [{kind: cuda, name: gpu}, {kind: cpu, name: cpu, memory: 4GiB}]\n"
        "models: {a: {cmd: 'vllm serve --port ${PORT}', memory: 2GiB, device: " +
            device + "}}",
        "/etc/heddle/heddle.yaml",
        process_environment,
        machine);
  };
  ASSERT_TRUE(on("gpu")) << on("gpu").error().message;
  ASSERT_FALSE(on("cpu"));
  EXPECT_THAT(on("cpu").error().message, HasSubstr("is pinned for the GPUs"));
}

TEST(Engines, AnExternalDeviceIsForThem) {
  const Result<Config> config = parse(R"(
devices: [{name: cpu, memory: 1GiB, page: 64KiB}, {name: gpu, kind: external, memory: 24GiB}]
models: {n: {path: x}, a: {engine: vllm, path: org/a, args: "--max-model-len 8192"}}
)");
  ASSERT_TRUE(config) << config.error().message;
  const EngineConfig& vllm = engine(config, "a");
  EXPECT_EQ(vllm.device, "gpu");
  EXPECT_EQ(config->devices[1].page, 64U << 10U) << "as the other has";
  EXPECT_THAT(vllm.command, Contains("--max-model-len"));
  EXPECT_THAT(vllm.command, Contains("5800"));
  EXPECT_THAT(vllm.suspend,
              ElementsAre(SuspendLevel::kSleep, SuspendLevel::kDeepSleep, SuspendLevel::kStop));
  EXPECT_EQ(vllm.served_name, "a");
  EXPECT_EQ(vllm.start_timeout, 10min);
}

TEST(Engines, WithElasticKvAreToldKvcachedsVariables) {
  const Result<Config> config = parse(R"(
devices: [{name: gpu, kind: external, memory: 24GiB}]
models:
  a: {engine: vllm, path: org/a, memory: 8GiB, kv: elastic, env: [KVCACHED_AUTOPATCH=0]}
  b: {cmd: 'run ${PORT}', memory: 8GiB, kv: elastic, kv_least: 2GiB}
  c: {cmd: 'run ${PORT}', memory: 8GiB}
)");
  ASSERT_TRUE(config) << config.error().message;
  const EngineConfig& vllm = engine(config, "a");
  EXPECT_TRUE(vllm.elastic_kv);
  EXPECT_EQ(vllm.kv_least, 1ULL << 30U);
  EXPECT_THAT(vllm.env, testing::Contains(testing::Pair("ENABLE_KVCACHED", "true")));
  EXPECT_THAT(vllm.env, testing::Contains(testing::Pair("KVCACHED_AUTOPATCH", "0")));
  EXPECT_EQ(engine(config, "b").kv_least, 2ULL << 30U);
  EXPECT_FALSE(engine(config, "c").elastic_kv);
}

TEST(Engines, KeysOfOurs) {
  const Result<Config> config = parse(R"(
models:
  c:
    container:
      {image: img, runtime: docker, options: "--gpus all -v /m:/m", args: [-m, "x y", "${PORT}"]}
    engine: llama-server
    memory: 4GiB
    suspend: [freeze, checkpoint]
    snapshot: on_start
    probe: false
    drain: 250ms
    start_timeout: 30
    resume_timeout: 5s
    directory: work
  away: {proxy: "http://box:1234/v2", engine: vllm, suspend: sleep}
)");
  ASSERT_TRUE(config) << config.error().message;
  const EngineConfig& inside = engine(config, "c");
  EXPECT_EQ(inside.container.image, "img");
  EXPECT_EQ(inside.container.runtime, "docker");
  EXPECT_THAT(inside.container.options, ElementsAre("--gpus", "all", "-v", "/m:/m"));
  EXPECT_THAT(inside.container.args, ElementsAre("-m", "x y", "5800"));
  EXPECT_EQ(inside.memory, 4ULL << 30U);
  EXPECT_THAT(inside.suspend,
              ElementsAre(SuspendLevel::kFreeze, SuspendLevel::kCheckpoint, SuspendLevel::kStop));
  EXPECT_EQ(inside.snapshot, SnapshotPolicy::kOnStart);
  EXPECT_FALSE(inside.probe);
  EXPECT_EQ(inside.drain, 250ms);
  EXPECT_EQ(inside.start_timeout, 30s);
  EXPECT_EQ(inside.resume_timeout, 5s);
  EXPECT_EQ(inside.directory, "/etc/heddle/work");
  const EngineConfig& away = engine(config, "away");
  EXPECT_THAT(away.command, IsEmpty());
  EXPECT_EQ(away.upstream, (HttpAddress{.host = "box", .port = 1234, .base_path = "/v2"}));
  EXPECT_THAT(away.suspend, ElementsAre(SuspendLevel::kSleep, SuspendLevel::kStop));
}

TEST(Engines, WhatCannotBeMeantIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"models: {a: {cmd: ''}}", "models.a.cmd: is empty"},
      {"models: {a: {cmd: \"run 'x\"}}", "the quote ' is not closed"},
      {"models: {a: {cmd: }}", "models.a.cmd: is missing: say how the engine is started"},
      {"models: {a: {engine: vllm, path: }}", "models.a.cmd: is missing"},
      {"models: {a: {proxy: }}", "models.a.cmd: is missing: say how the engine is started"},
      {"models: {a: {cmd: x, path: y}}", "models.a.path: the engine is told its model in cmd"},
      {"models: {a: {cmd: x, dtype: int8}}",
       "models.a.dtype: is for models that heddle runs itself"},
      {"models: {a: {cmd: x, kv_cache_dtype: int8}}",
       "models.a.kv_cache_dtype: is for models that heddle runs itself"},
      {"models: {a: {path: x, memory: 1GiB}}", "models.a.memory: is for engines"},
      {"models: {a: {cmd: x, container: {image: i}}}", "container: cannot stand beside cmd"},
      {"models: {a: {container: {}}}", "container.image: is missing"},
      {"models: {a: {engine: vllm}}", "models.a.path: is missing"},
      {"models: {a: {engine: generic, path: x}}", "says not how it is started"},
      {"models: {a: {engine: vlm, cmd: x}}", "\"vlm\" is not one of generic, vllm"},
      {"models: {a: {cmd: x, args: y}}", "args: go behind the command line"},
      {"models: {a: {cmd: x, suspend: [stop, freeze]}}", "\"freeze\" comes too late"},
      {"models: {a: {cmd: x, healthCheckTimeout: 0}}", "a.healthCheckTimeout: must be more than 0"},
      {"models: {a: {cmd: x, start_timeout: 0}}", "a.start_timeout: must be more than 0"},
      {"models: {a: {cmd: x, resume_timeout: 0}}", "a.resume_timeout: must be more than 0"},
      {"models: {a: {cmd: x, suspend: [doze]}}", "\"doze\" is not one of freeze"},
      {"models: {a: {cmd: x, suspend: [sleep]}}", "no call for sleep is known"},
      {"models: {a: {cmd: x, engine: sglang, suspend: [deep_sleep]}}",
       "no call for deep_sleep is known of an engine of kind sglang; it takes engine: vllm"},
      {"models: {a: {cmd: x, engine: vllm, suspend: [deep_sleep, sleep]}}",
       "\"sleep\" comes too late"},
      {"models: {a: {proxy: 'http://x', suspend: freeze}}",
       "freeze takes an engine that is run here"},
      {"models: {a: {cmd: x, env: [A]}}", "\"A\" is not of the form NAME=value"},
      {"models: {a: {cmd: x, proxy: 'https://y'}}", "is https"},
      {"models: {a: {cmd: x, checkEndpoint: health}}", "\"health\" is no path"},
      {"models: {a: {cmd: x, memory: 17GiB}}", "can never fit: the device engines has 16.0 GiB"},
      {"models: {a: {cmd: x}, n: {path: y}}", "models.a.memory: is missing"},
      {"models: {a: {cmd: x, kv: elastic}}", "models.a.memory: is missing: say what the engine"},
      {"models: {a: {cmd: x, kv_least: 1GiB}}", "kv_least: is for kv: elastic"},
      {"models: {a: {cmd: x, memory: 1GiB, kv: elastic, kv_least: 0}}", "kvcached takes no notice"},
      {"models: {a: {cmd: x, memory: 15GiB, kv: elastic, kv_least: 2GiB}}",
       "and kv_least 2.00 GiB can never fit"},
      {"models: {a: {cmd: x, engine: ollama, memory: 1GiB, kv: elastic}}",
       "an engine of kind ollama has none"},
      {"models: {a: {proxy: 'http://x', memory: 1GiB, kv: elastic}}",
       "elastic takes an engine that is run here"},
      {"models: {a: {container: {image: i}, memory: 1GiB, kv: elastic}}", "add --ipc=host"},
      {"models: {a: {path: x, kv: elastic}}", "models.a.kv: is for engines"},
      {"models: {a: {cmd: x, device: gpu9}}", "there is no \"gpu9\"; there are: engines"},
      {"models: {a: {cmd: x, unloadtimeout: 3}}", "did you mean \"unloadTimeout\""},
      {"models: {a: {cmd: x, filters: {setParamsByID: {b: 1}}}}", "b is no map"},
      {"models: {a: {proxy: 'http://127.0.0.1:8080', cmd: x}}", "heddle itself listens on"},
      {"devices: [{kind: external, memory: 1GiB, cores: 0}]", "not for an external one"},
      {"devices: [{kind: external, memory: 1GiB}, {kind: external, memory: 1GiB}]\n"
       "models: {a: {cmd: x}}",
       "name one of external0, external1"},
      {"groups: {g: {members: [a]}}\nmatrix: {sets: {s: a}}\nmodels: {a: {cmd: x}}",
       "matrix: cannot stand beside groups"},
      {"routing: {router: {use: matrix}}", "settings.matrix is missing"},
      {"routing: {router: {settings: {groups: {g: {members: [a]}}}}}\ngroups: {g: {members: [a]}}\n"
       "models: {a: {cmd: x}}",
       "keep one of them"},
      {"matrix: {sets: {s: a & ghost}}\nmodels: {a: {cmd: x}}", "\"ghost\" is neither a model"},
  };
  for (const auto& [text, message] : cases) {
    const Result<Config> config = parse(text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr(message)) << text;
  }
}

TEST(Engines, MayBeOnSeveralDevicesInTheOrderOfTheFile) {
  const Result<Config> config = parse(kTwoGpus + R"(
models:
  both: {cmd: 'x ${PORT}', memory: 1GiB, device: [h, g]}
  one: {cmd: 'x ${PORT}', memory: 1GiB, device: [h]}
  whole: {cmd: 'x ${PORT}', device: h}
)");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(engine(config, "both").device, "g");
  EXPECT_THAT(engine(config, "both").further_devices, ElementsAre("h"));
  EXPECT_EQ(device_names(engine(config, "both")), "g+h");
  EXPECT_EQ(engine(config, "one").device, "h");
  EXPECT_THAT(engine(config, "one").further_devices, IsEmpty());
  EXPECT_THAT(config->models[2].displaces, ElementsAre("both", "one"))
      << "it may need all of a device that the others have, too";
}

TEST(Engines, CannotBeOnAnySeveralDevices) {
  const std::pair<std::string, const char*> cases[] = {
      {"models: {a: {cmd: x, memory: 1GiB, device: [engines, gpu9]}}",
       "models.a.device: there is no \"gpu9\"; there are: engines"},
      {"models: {a: {cmd: x, memory: 1GiB, device: [engines, engines]}}",
       "models.a.device: names \"engines\" twice"},
      {"devices: [{name: g, kind: external, memory: 1GiB}, {name: c, memory: 1GiB}]\n"
       "models: {a: {cmd: x, memory: 1MiB, device: [c, g]}}",
       "models.a.device: g and c are of different kinds; name devices of one kind"},
      {kTwoGpus + "models: {a: {cmd: x, device: [g, h]}}",
       "models.a.memory: is missing: say what the engine needs of each of its devices"},
      {kTwoGpus + "models: {a: {cmd: x, memory: 2GiB, device: [g, h]}}",
       "2.00 GiB can never fit: the device h has 1.00 GiB"},
      {kTwoGpus +
           "models: {a: {cmd: x, memory: 1MiB, kv_least: 1MiB, kv: elastic, device: [g, h]}}",
       "models.a.device: an engine with elastic KV is on one device, and this one names 2"},
  };
  for (const auto& [text, message] : cases) {
    const Result<Config> config = parse(text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr(message)) << text;
  }
}

TEST(Engines, ThatMayRunAtOnceNeedPortsOfTheirOwn) {
  const std::string two =
      "models:\n  a: {cmd: run --port 99, proxy: 'http://127.0.0.1:99'}\n"
      "  b: {cmd: run --port 99, proxy: 'http://localhost:99'}\n";
  EXPECT_TRUE(parse(two)) << "one at a time";
  const Result<Config> together = parse(two + "groups: {g: {swap: false, members: [a, b]}}\n");
  ASSERT_FALSE(together);
  EXPECT_THAT(together.error().message, HasSubstr("models.b: port 99 is also that of a"));
  EXPECT_TRUE(
      parse("models: {a: {proxy: 'http://127.0.0.1:99'}, b: {proxy: 'http://127.0.0.1:99'}}"))
      << "one server of somebody else's may have two models";
}

TEST(Engines, RoutingChoosesBetweenGroupsAndMatrix) {
  const std::string file = R"(
models: {a: {cmd: x}, b: {cmd: y}, c: {cmd: z}}
routing:
  scheduler: {use: fifo}
  router:
    use: USE
    settings:
      groups: {g: {swap: false, members: [a, b, c]}}
      matrix: {vars: {v: a}, evict_costs: {a: 3}, sets: {s: "v & b"}}
)";
  std::string by_group = file;
  const Result<Config> groups = parse(by_group.replace(file.find("USE"), 3, "group"));
  ASSERT_TRUE(groups) << groups.error().message;
  EXPECT_THAT(groups->models[0].displaces, IsEmpty());
  std::string by_matrix = file;
  const Result<Config> matrix = parse(by_matrix.replace(file.find("USE"), 3, "matrix"));
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_THAT(matrix->models[0].displaces, ElementsAre("c"));
  EXPECT_THAT(matrix->models[2].displaces, ElementsAre("a", "b"));
}

TEST(Engines, ModelsOfLargerPrioritiesGoFirst) {
  const std::string file = R"(
models:
  a: {cmd: "x ${PORT}", memory: 1GiB, aliases: [first]}
  b: {cmd: "x ${PORT}", memory: 1GiB}
  c: {cmd: "x ${PORT}", memory: 1GiB}
routing: {scheduler: {use: fifo, settings: {fifo: {priority: {first: 10, b: -3, gone: 1}}}}}
)";
  const Result<Config> config = parse(file);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->models[0].priority, -10);
  EXPECT_EQ(config->models[1].priority, 3);
  EXPECT_EQ(config->models[2].priority, 0);
  EXPECT_THAT(config->warnings, ElementsAre(HasSubstr("priority.gone: \"gone\" is no model")));
  std::string wrong = file;
  EXPECT_THAT(parse(wrong.replace(wrong.find("10"), 2, "1.5")).error().message,
              HasSubstr("priority.first: is 1.5; want a whole number"));
}

TEST(Engines, WhatIsNotSupportedIsNamedAndReadOver) {
  const Result<Config> config = parse(R"(
logTimeFormat: rfc3339
logToStdout: both
store: {path: /x}
captureBuffer: 15
metricsMaxInMemory: 5
performance: {every: 15s}
ui: {activity: {session_id: [X]}}
models:
  a:
    cmd: x ${PORT}
    compat: {ignoreWebsockets: true}
    timeouts: {connect: 3}
)");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->warnings.size(), 9U);
  EXPECT_THAT(config->warnings,
              Contains("/etc/heddle/heddle.yaml, line 5: captureBuffer: has no effect: bodies of "
                       "requests are kept nowhere"));
}

TEST(Engines, OneThatCannotSleepAsItIsToldIsWarnedOf) {
  const Result<Config> config = parse(R"(
models:
  a: {cmd: "run ${PORT}", engine: sglang, suspend: [sleep]}
  b: {cmd: "run ${PORT}", engine: vllm, suspend: [deep_sleep]}
  away: {proxy: "http://box:1234", engine: vllm, suspend: [sleep, deep_sleep]}
)");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->warnings,
              ElementsAre(HasSubstr("--enable-memory-saver"),
                          HasSubstr("--enable-weights-cpu-backup"),
                          HasSubstr("--enable-sleep-mode")));
}

TEST(Engines, OneThatIsNotToldItsPortIsWarnedOf) {
  const Result<Config> config = parse("models: {a: {cmd: run}}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->warnings, ElementsAre(HasSubstr("does not name port 5800")));
}

}  // namespace
}  // namespace heddle::config
