#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Machine kMachine{.cores = {0, 1, 2, 3}, .memory = 16ULL << 30U};

Result<Config> parse(std::string_view text) {
  return parse_config(text, "/etc/heddle/heddle.yaml", process_environment, kMachine);
}

constexpr std::string_view kWholeFile = R"(
listen: ["127.0.0.1:8080", "http://:9090"]
tls: {certificate: server.crt, key: /etc/keys/server.key}
apiKeys: [one, {key: two, priority: 3}]
host: {memory: 2GiB, step_tokens: 256, nic: 10Gb/s}
devices:
  - {name: cpu0, kind: cpu, cores: "0-1", memory: 64MiB, page: 64KiB, load_bandwidth: 50MB/s,
     pace: {step: 20ms, token: 1ms}, step_budget: 30ms, prefix_cache: 40%}
  - {memory: 1GiB, copy: true}
models:
  adder: {path: models/adder, dtype: float32, kv_cache_dtype: int8,
          activation_dtype: bfloat16, aliases: [sums, plus],
          pin: true, ttl: 300, tool_parser: hermes}
  org/name:8b:
    path: org/name
    name: Big one
    context: 4096
    min_residence: 2s
    slo: {ttft: 2s, tpot: 80ms}
    batch: 8
    concurrencyLimit: 3
    unlisted: true
limits: {body: 1MiB, queue: 7, request_timeout: 90s}
batches: {disk: 3GiB, at_once: 4, quiet: 1m}
planner: {policy: reactive, prewarm: true, window: 1m, period: 250ms, drain_after: 3s, kv: static}
logLevel: warn
logFormat: json
dataDir: data
event_log: /var/log/events
shutdown_timeout: 5s
)";

TEST(Config, ReadsAWholeFile) {
  const Result<Config> config = parse(kWholeFile);

  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->listen.size(), 2U);
  EXPECT_EQ(config->listen[1].port, 9090);
  EXPECT_EQ(config->listen[1].scheme, Scheme::kHttp);
  ASSERT_TRUE(config->tls);
  EXPECT_EQ(config->tls->certificate, "/etc/heddle/server.crt");
  EXPECT_EQ(config->tls->key, "/etc/keys/server.key");
  ASSERT_EQ(config->api_keys.size(), 2U);
  EXPECT_EQ(config->api_keys[1].priority, 3);
  EXPECT_EQ(config->host.memory, 2ULL << 30U);
  EXPECT_EQ(config->host.step_tokens, 256);
  EXPECT_EQ(config->host.nic, 1'250'000'000U);
  ASSERT_EQ(config->devices.size(), 2U);
  const DeviceConfig& paced = config->devices[0];
  EXPECT_THAT(paced.cores, ElementsAre(0, 1));
  EXPECT_EQ(paced.page, 64U << 10U);
  EXPECT_EQ(paced.load_bandwidth, 50'000'000U);
  EXPECT_TRUE(paced.copy) << "implied by load_bandwidth";
  EXPECT_EQ(paced.pace.step, 20ms);
  EXPECT_EQ(config->planner,
            (PlannerConfig{.queue = QueueOrder::kArrival,
                           .kv = KvSharing::kStatic,
                           .prewarm = true,
                           .value = false,
                           .pressure = false,
                           .replicas = false,
                           .period = 250ms,
                           .drain_after = 3s,
                           .window = 1min}));
  EXPECT_EQ(config->models.back().batch, 8);
  EXPECT_EQ(paced.step_budget, 30ms);
  EXPECT_EQ(paced.prefix_cache, 40);
  EXPECT_EQ(config->devices[1].name, "cpu1");
  EXPECT_THAT(config->devices[1].cores, ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(config->devices[1].copy);
  ASSERT_EQ(config->models.size(), 2U);
  const ModelConfig& adder = config->models[0];
  EXPECT_EQ(adder.path, "models/adder");
  EXPECT_EQ(adder.dtype, spec::DType::kF32);
  EXPECT_THAT(adder.aliases, ElementsAre("sums", "plus"));
  EXPECT_TRUE(adder.pin);
  EXPECT_EQ(adder.tool_parser, ToolParser::kHermes);
  EXPECT_EQ(adder.reasoning_parser, ReasoningParser::kAuto);
  EXPECT_EQ(adder.ttl, 300s);
  EXPECT_EQ(config->models[1].id, "org/name:8b");
  EXPECT_EQ(config->models[1].dtype, spec::DType::kStored);
  EXPECT_EQ(adder.kv, spec::KvType::kI8);
  EXPECT_FALSE(adder.f8_inputs);
  EXPECT_TRUE(config->models[1].f8_inputs);
  EXPECT_EQ(config->models[1].kv, spec::KvType::kComputed);
  EXPECT_EQ(config->models[1].concurrency_limit, 3);
  EXPECT_EQ(config->models[1].slo.ttft, 2s);
  EXPECT_EQ(config->models[1].slo.tpot, 80ms);
  EXPECT_EQ(adder.slo.ttft, 0s) << "derived";
  EXPECT_EQ(config->limits.queue, 7);
  EXPECT_EQ(config->limits.request_timeout, 90s);
  EXPECT_EQ(config->batches, (BatchesConfig{.disk = 3ULL << 30U, .at_once = 4, .quiet = 1min}));
  EXPECT_EQ(config->log_level, log::Level::kWarning);
  EXPECT_EQ(config->log_format, log::Format::kJson);
  EXPECT_EQ(config->data_dir, "/etc/heddle/data");
  EXPECT_EQ(config->event_log, "/var/log/events");
  EXPECT_EQ(config->directory, "/etc/heddle");
}

TEST(Config, TheSameInJson) {
  const Result<Config> config = parse(
      R"({"models": {"a": {"path": "x", "pin": true, "aliases": ["b"]}}, "limits": {"queue": 3}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->models[0].pin);
  EXPECT_EQ(config->limits.queue, 3);
}

TEST(Config, WithoutDevicesOneGetsAllCoresAndHalfTheMemory) {
  const Result<Config> config = parse("");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->devices.size(), 1U);
  EXPECT_EQ(config->devices[0].name, "cpu0");
  EXPECT_EQ(config->devices[0].cores, kMachine.cores);
  EXPECT_EQ(config->devices[0].memory, 8ULL << 30U);
}

TEST(Config, TheHostCacheGetsAQuarterOfTheMemoryAsFarAsDevicesLeaveIt) {
  EXPECT_EQ(parse("devices: [{memory: 5GiB}]")->host.memory, 4ULL << 30U);
  EXPECT_EQ(parse("devices: [{memory: 9GiB}]")->host.memory >> 20U, 2252U) << "seven tenths of 16";
  EXPECT_EQ(parse("devices: [{memory: 15GiB}]")->host.memory, 1ULL << 30U);
}

TEST(Config, KvOfModelsThatLeftHasAnEighthAtMostWhatCpusHave) {
  EXPECT_EQ(parse("host: {memory: 16GiB}\ndevices: [{memory: 5GiB}]")->host.kv, 2ULL << 30U);
  EXPECT_EQ(parse("host: {memory: 16GiB}\ndevices: [{memory: 64MiB}]")->host.kv, 64ULL << 20U);
  EXPECT_EQ(parse("host: {memory: 16GiB, kv: 1GiB}")->host.kv, 1ULL << 30U);
  EXPECT_EQ(parse("host: {kv: 0}")->host.kv, 0U);
}

TEST(Config, APolicyIsASetOfSwitchesThatMayBeTurnedOneByOne) {
  const auto planner = [](const std::string& text) {
    return parse("planner: {" + text + "}\n").value().planner;
  };
  EXPECT_EQ(planner("policy: heddle"), PlannerConfig{});
  EXPECT_FALSE(planner("policy: heddle, prewarm: false").prewarm);
  EXPECT_TRUE(planner("policy: heddle, prewarm: false").replicas);
  EXPECT_TRUE(planner("policy: heddle").forecast);
  EXPECT_FALSE(planner("forecast: false").forecast);
  EXPECT_FALSE(planner("share_groups: false").share_groups);
  const PlannerConfig reactive = planner("policy: reactive");
  EXPECT_FALSE(reactive.prewarm || reactive.value || reactive.pressure || reactive.replicas);
  EXPECT_TRUE(reactive.share && reactive.evict);
  EXPECT_FALSE(planner("policy: sllm-gpu").share);
  EXPECT_TRUE(planner("policy: sllm-gpu").replicas);
  EXPECT_FALSE(planner("policy: muxserve++").evict);
  EXPECT_EQ(planner("policy: muxserve++").kv, KvSharing::kElastic);
  EXPECT_EQ(planner("policy: static").kv, KvSharing::kStatic);
  EXPECT_EQ(planner("policy: static, queue: deadline").queue, QueueOrder::kDeadline);
}

TEST(Config, EveryProblemIsReportedOnItsLine) {
  const Result<Config> config = parse("modles: {}\nlimits:\n  body: -5MiB\n  queue: 0\n");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr("line 1: modles"));
  EXPECT_THAT(config.error().message, HasSubstr("\"models\""));
  EXPECT_THAT(config.error().message, HasSubstr("line 3: limits.body: "));
  EXPECT_THAT(config.error().message, HasSubstr("-5MiB"));
  EXPECT_THAT(config.error().message, HasSubstr("line 4: limits.queue: \"0\""));
}

TEST(Config, WhatCannotBeMeantIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"models: {a: {}}", "models.a.path: is missing"},
      {"models: {a: {path: x}, b: {path: y, aliases: [a]}}", "already means the model a"},
      {"models: {a: {path: x, dtype: float7}}",
       "\"float7\" is not one of stored, bfloat16, float32, int8"},
      {"models: {a: {path: x, kv_cache_dtype: fp8_e5m2}}",
       "models.a.kv_cache_dtype: \"fp8_e5m2\" is not one of auto, int8, fp8, fp8_e4m3"},
      {"models: {a: {path: x, activation_dtype: fp8}}",
       "models.a.activation_dtype: \"fp8\" is not one of auto, bfloat16"},
      {"planner: {queue: fast}", "\"fast\" is not one of deadline, arrival"},
      {"models: {a: {path: x, batch: 0}}", "models.a.batch: \"0\""},
      {"planner: {policy: best}",
       "\"best\" is not one of heddle, reactive, sllm-gpu, muxserve++, static"},
      {"planner: {window: 7m}", "must divide a day"},
      {"planner: {period: 0s}", "planner.period: must be more than 0"},
      {"planner: {prewram: true}", "planner.prewram: "},
      {"models: {a: {path: x, slo: {ttft: 0s}}}", "models.a.slo.ttft: must be more than 0"},
      {"models: {a: {path: x, slo: {tpot: fast}}}", "models.a.slo.tpot: \"fast\""},
      {"models: {a: {path: x, slo: {ttfb: 1s}}}", "models.a.slo.ttfb: "},
      {"models: [1, 2]", "models: is a list; want a map"},
      {"devices: [{memory: 1MiB}]", "less than one page"},
      {"devices: [{memory: 64MiB, page: 3MiB}]", "power of two"},
      {"devices: [{memory: 64MiB, cores: 9}]", "there is no core 9; this process may use 0-3"},
      {"devices: [{memory: 64MiB, name: x}, {memory: 64MiB, name: x}]", "name of devices[0]"},
      {"devices: [{memory: 64MiB, load_bandwidth: 1MB/s, copy: false}]", "contradicts"},
      {"devices: [{memory: 64MiB, step_budget: 0}]", "more than 0"},
      {"devices: [{memory: 64MiB, prefix_cache: 101%}]", "want off, or a share such as 50%"},
      {"devices: [{memory: 64MiB, prefix_cache: 50}]", "want off, or a share such as 50%"},
      {"devices: [{memory: 64MiB, prefix_cache: offf}]", "want off, or a share such as 50%"},
      {"devices: [{}]", "devices[0].memory: is missing"},
      {"host: {nic: 0}", "host.nic: \"0\" is not a rate; write a size above zero"},
      {"devices: [{memory: 64MiB, kind: tpu}]", "\"tpu\" is not one of cpu, external"},
      {"listen: https://:443", "has an address with https://; set tls.certificate"},
      {"tls: {key: a}", "tls.certificate: is missing"},
      {"listen: nowhere", "\"nowhere\" is not an address"},
      {"- a", "not a map"},
  };
  for (const auto& [text, message] : cases) {
    const Result<Config> config = parse(text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr(message)) << text;
  }
}

TEST(Config, AMissingFileIsAnErrorThatNamesIt) {
  const Result<Config> config = load_config("/no/such/heddle.yaml");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, Code::kNotFound);
  EXPECT_THAT(config.error().message, HasSubstr("/no/such/heddle.yaml"));
}

TEST(Config, AModelIsCutOverDevicesThatAreThereAndAlike) {
  const auto sharded = [](const std::string& ranks, const std::string& second) {
    return parse("devices: [{memory: 8MiB}, {memory: " + second +
                 "}]\nmodels: {m: {path: x, tensor_parallel: " + ranks + "}}");
  };
  const Result<Config> right = sharded("2", "8MiB");
  ASSERT_TRUE(right) << right.error().message;
  EXPECT_EQ(right->models[0].tensor_parallel, 2);
  EXPECT_THAT(sharded("3", "8MiB").error().message, HasSubstr("want 1, 2, 4 or 8"));
  EXPECT_THAT(sharded("2", "10MiB").error().message, HasSubstr("2 devices that follow"));
  EXPECT_THAT(sharded("4", "8MiB").error().message, HasSubstr("4 devices that follow"));
}

Machine with_gpus() {
  Machine machine = kMachine;
  machine.memory = 128ULL << 30U;
  machine.gpus = {{.name = "Big GPU", .memory = 80ULL << 30U},
                  {.name = "Small GPU", .memory = 20ULL << 30U}};
  return machine;
}

TEST(Config, AllGpusAreDevicesWhenNothingIsSaid) {
  const Result<Config> config =
      parse_config("models: {m: {path: m}}", "heddle.yaml", process_environment, with_gpus());
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->devices.size(), 2U);
  EXPECT_EQ(config->devices[1].kind, DeviceKind::kCuda);
  EXPECT_EQ(config->devices[1].name, "gpu1");
  EXPECT_EQ(config->devices[1].gpu, 1);
  EXPECT_EQ(config->devices[1].memory, 18ULL << 30U);
  EXPECT_TRUE(config->devices[1].copy);
  EXPECT_EQ(config->host.memory, 32ULL << 30U);
}

TEST(Config, GpusAreNumberedAndTheirMemoryIsKnown) {
  const Result<Config> config = parse_config(R"(
devices:
  - {kind: cuda, gpu: 1, name: small}
  - {kind: cpu, memory: 1GiB}
  - {kind: cuda, gpu: 0, memory: 40GiB}
)",
                                             "heddle.yaml",
                                             process_environment,
                                             with_gpus());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->devices[0].memory, 18ULL << 30U);
  EXPECT_EQ(config->devices[2].memory, 40ULL << 30U);
  EXPECT_THAT(config->devices[0].cores, testing::IsEmpty());
}

TEST(Config, WhatAGpuCannotBeIsSaid) {
  const auto error = [](std::string_view text, const Machine& machine) {
    const auto config = parse_config(text, "heddle.yaml", process_environment, machine);
    return config ? std::string() : config.error().message;
  };
  EXPECT_THAT(error("devices: [{kind: cuda, gpu: 2}]", with_gpus()),
              HasSubstr("there is no GPU 2; there are 0 (Big GPU), 1 (Small GPU)"));
  EXPECT_THAT(error("devices: [{kind: cuda, memory: 90GiB}]", with_gpus()),
              HasSubstr("90.0 GiB of a GPU with 80.0 GiB"));
  EXPECT_THAT(error("devices: [{kind: cuda, load_bandwidth: 1GB/s}]", with_gpus()),
              HasSubstr("load_bandwidth: is for a CPU"));
  EXPECT_THAT(error("devices: [{kind: cpu, memory: 1GiB, gpu: 0}]", with_gpus()),
              HasSubstr("gpu: is for devices of kind cuda"));
  Machine old = with_gpus();
  old.gpus[1].unusable = "has no virtual memory management";
  EXPECT_THAT(error("devices: [{kind: cuda, gpu: 1}]", old), HasSubstr("GPU 1 has no virtual"));
  Machine none = kMachine;
  none.no_gpus = "there is no driver";
  EXPECT_THAT(error("devices: [{kind: cuda}]", none),
              HasSubstr("there is no GPU that heddle could use: there is no driver"));
}

TEST(Config, PagesAreMultiplesOfWhatAGpuMaps) {
  Machine machine = with_gpus();
  machine.gpus[0].page = 2U << 20U;
  const auto config =
      parse_config("devices: [{kind: cuda, page: 64KiB}]", "f", process_environment, machine);
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message,
              HasSubstr("devices[0] (gpu0): page: 65536 bytes; this GPU maps 2.00 MiB at once"));
  EXPECT_TRUE(
      parse_config("devices: [{kind: cuda, page: 4MiB}]", "f", process_environment, machine));
}

TEST(Config, WhatOthersHoldOfAGpuIsNotPlannedWith) {
  Machine machine = with_gpus();
  machine.gpus[0].others = 30ULL << 30U;
  machine.gpus[0].holders = "trainer (4711) 30.0 GiB";
  const auto config =
      parse_config("devices: [{kind: cuda}, {kind: cuda}]", "f", process_environment, machine);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->devices[0].memory, 45ULL << 30U) << "nine tenths of the rest";
  EXPECT_EQ(config->devices[1].memory, 18ULL << 30U);
  EXPECT_THAT(config->warnings, testing::IsEmpty());

  const auto too_much =
      parse_config("devices: [{kind: cuda, memory: 60GiB}]", "f", process_environment, machine);
  ASSERT_TRUE(too_much) << "they may give it up";
  EXPECT_THAT(too_much->warnings,
              ElementsAre(HasSubstr("memory: 60.0 GiB of a GPU with 80.0 GiB, of which others "
                                    "hold 30.0 GiB (trainer (4711) 30.0 GiB)")));

  machine.gpus[0].others = 90ULL << 30U;
  const auto none = parse_config("devices: [{kind: cuda}]", "f", process_environment, machine);
  ASSERT_TRUE(none) << "other devices are none the worse";
  EXPECT_EQ(none->devices[0].memory, none->devices[0].page);
  EXPECT_EQ(none->warnings.size(), 1U);
}

TEST(Config, AGpuIsAsItsDriverSaysItIs) {
  Machine machine = with_gpus();
  machine.gpus[0].peers = {1};
  machine.gpus[1].no_guests = "has no stream memory operations";
  const auto config = parse_config(
      "devices: [{kind: cuda, gpu: 1}, {kind: cuda, gpu: 0}]", "f", process_environment, machine);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->devices[0].no_guests, "has no stream memory operations");
  EXPECT_THAT(config->devices[0].peers, testing::IsEmpty());
  EXPECT_EQ(config->devices[1].no_guests, "");
  EXPECT_THAT(config->devices[1].peers, ElementsAre(1));
}

TEST(Config, WeavingIsBetweenDevicesOfOneKind) {
  const auto parsed = [](const std::string& text) {
    return parse_config(text, "f", process_environment, with_gpus());
  };
  const std::string two = "devices: [{name: a, memory: 1GiB}, {name: b, memory: 1GiB}]\n";
  const auto config = parsed(two + "planner: {weave: true}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->planner.weave);
  EXPECT_THAT(config->warnings, testing::IsEmpty());
  EXPECT_EQ(config->planner.weave_share, 50);
  EXPECT_EQ(parsed(two + "planner: {weave_share: 45%}")->planner.weave_share, 45);
  for (const char* wrong : {"45", "0%", "51%", "half"}) {
    const auto refused = parsed(two + "planner: {weave_share: " + wrong + "}");
    ASSERT_FALSE(refused) << wrong;
    EXPECT_THAT(refused.error().message, HasSubstr("want a share of 1% to 50%"));
  }
  const auto gpus = parsed("devices: [{kind: cuda}, {kind: cuda}]\nplanner: {weave: true}");
  ASSERT_TRUE(gpus) << gpus.error().message;
  EXPECT_THAT(gpus->warnings, testing::IsEmpty());
  const auto alone =
      parsed("devices: [{kind: cuda}, {name: a, memory: 1GiB}]\nplanner: {weave: true}");
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_THAT(alone->warnings, ElementsAre(HasSubstr("planner.weave has no effect")));
  const auto divided = parsed(two + "planner: {weave: true, kv: static}");
  ASSERT_FALSE(divided);
  EXPECT_THAT(divided.error().message, HasSubstr("contradicts kv: static"));
}

}  // namespace
}  // namespace heddle::config
