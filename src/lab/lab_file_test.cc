#include "lab/lab_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::lab {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

Result<LabFile> parse(const std::string& text) {
  return parse_lab_file(text,
                        "exp.yaml",
                        [](const std::string&) { return std::nullopt; },
                        {.cores = {0, 1}, .memory = 1U << 30U});
}

const std::string kConfig = R"(config:
  devices: [{name: a, memory: 8MiB, page: 64KiB, load_bandwidth: 1MB/s, pace: {step: 20ms}}]
  models:
    one: {path: models/adder}
    two: {path: models/morse}
)";
const std::string kTrace =
    "trace: {rate: 4, duration: 60s, zipf: 1.1, cv: 2, input_tokens: 64..128, output_tokens: 8}\n";

TEST(LabFile, ReadsAnExperiment) {
  const Result<LabFile> lab = parse(kConfig + kTrace + R"(
scale: 60
seeds: 5
warmup: 10s
policies:
  small: {devices: [{name: a, memory: 4MiB, page: 64KiB}]}
  pinned: {models: {two: {pin: true}}}
)");
  ASSERT_TRUE(lab) << lab.error().message;
  EXPECT_EQ(lab->scale, 60);
  EXPECT_EQ(lab->seeds, 5);
  EXPECT_EQ(lab->warmup, 10s);
  ASSERT_TRUE(lab->drawn);
  EXPECT_EQ(lab->drawn->cv, 2);
  EXPECT_EQ(lab->drawn->input.most, 128);
  EXPECT_EQ(lab->drawn->output.least, 8);
  ASSERT_EQ(lab->policies.size(), 2U);
  EXPECT_EQ(lab->policies[0].name, "small");
  EXPECT_EQ(lab->policies[0].config.devices[0].memory, 4U << 20U);
  EXPECT_EQ(lab->policies[0].config.devices[0].pace.step, 0s) << "lists are replaced";
  EXPECT_EQ(lab->policies[1].config.devices[0].pace.step, 20ms);
  ASSERT_EQ(lab->policies[1].config.models.size(), 2U);
  EXPECT_THAT(lab->policies[1].config.models[1].path, testing::EndsWith("models/morse"))
      << "maps are merged";
  EXPECT_TRUE(lab->policies[1].config.models[1].pin);
  EXPECT_EQ(lab->policies[1].config.listen[0].port, 0);
}

TEST(LabFile, HostsFetchModelsThatNobodyHas) {
  const std::string folder = testing::TempDir();
  const auto text = [&](const std::string& path, const std::string& host) {
    return "config:\n  devices: [{name: a, memory: 8MiB, page: 64KiB}]\n  models: {one: {path: " +
           path + "}}\n" + kTrace + "cold: true\nhosts:\n  h1: {host: " + host + "}\n  h2: {}\n";
  };
  const Result<LabFile> lab = parse(text(folder, "{nic: 1MB/s}"));
  ASSERT_FALSE(lab);
  EXPECT_THAT(lab.error().message, HasSubstr("cold: hosts.h2: host.nic is missing"));
  EXPECT_THAT(lab.error().message, testing::Not(HasSubstr("hosts.h1")));
  const Result<LabFile> remote = parse(text("acme/model", "{nic: 1MB/s}"));
  ASSERT_FALSE(remote);
  EXPECT_THAT(remote.error().message, HasSubstr("cold: models.one.path: \"acme/model\" is no"));
}

const std::string kEngineConfig = R"(config:
  devices: [{name: a, memory: 80MiB, page: 64KiB}]
  models:
    chat: {cmd: "./server --port ${PORT}", memory: 32MiB, suspend: [freeze, reclaim]}
    own: {path: models/adder}
)";

TEST(LabFile, SaysWhatEnginesTakeAndStartsThemWhereItIs) {
  const Result<LabFile> lab = parse(kEngineConfig + kTrace + R"(
engines:
  chat:
    start: 40s
    memory: 30MiB
    first_token: 80ms
    prompt_token: 200us
    token: 15ms
    suspend:
      freeze: {in: 10ms, memory: 30MiB}
      reclaim: {out: 2s, in: 3s, memory: 8MiB, host: 1MiB}
)");
  ASSERT_TRUE(lab) << lab.error().message;
  const EngineTimes& chat = lab->engines.at("chat");
  EXPECT_EQ(chat.start, 40s);
  EXPECT_EQ(chat.stop, 0s);
  EXPECT_EQ(chat.memory, 30U << 20U);
  EXPECT_EQ(chat.prompt_token, 200us);
  EXPECT_EQ(chat.suspend.at(spec::SuspendLevel::kFreeze).in, 10ms);
  EXPECT_EQ(chat.suspend.at(spec::SuspendLevel::kReclaim).out, 2s);
  EXPECT_EQ(chat.suspend.at(spec::SuspendLevel::kReclaim).host, 1U << 20U);
  const config::EngineConfig& engine = *lab->policies[0].config.models[0].engine;
  EXPECT_EQ(engine.directory, lab->directory) << "not where the run has its configuration";
  EXPECT_EQ(engine.command[0], lab->directory + "/server");
}

TEST(LabFile, SaysWhatIsWrongAboutEngines) {
  const auto error = [](const std::string& engines) {
    const Result<LabFile> lab = parse(kEngineConfig + kTrace + "engines: {" + engines + "}\n");
    return lab ? std::string() : lab.error().message;
  };
  const std::string times = "start: 1s, memory: 30MiB, first_token: 1ms";
  EXPECT_THAT(error("own: {" + times + "}"), HasSubstr("engines.own: no external engine"));
  EXPECT_THAT(error("other: {" + times + "}"), HasSubstr("engines.other: no external engine"));
  EXPECT_THAT(error("chat: {" + times + ", suspend: {freeze: {in: 1s}}}"),
              HasSubstr("engines.chat: suspend.reclaim is missing"));
  EXPECT_THAT(error("chat: {" + times + ", suspend: {stop: {in: 1s}}}"),
              HasSubstr("\"stop\" is no level"));
  EXPECT_THAT(error("chat: {memory: 30MiB, first_token: 1ms}"), HasSubstr("start: is missing"));
}

TEST(LabFile, HostsDifferByTheirDevices) {
  const Result<LabFile> lab = parse(kConfig + kTrace + R"(
hosts:
  h1: {}
  h2: {devices: [{name: a, memory: 4MiB, page: 64KiB}, {name: b, memory: 4MiB, page: 64KiB}]}
policies:
  all: {}
  reactive: {planner: {policy: reactive}}
)");
  ASSERT_TRUE(lab) << lab.error().message;
  for (const LabPolicy& policy : lab->policies) {
    std::vector<std::string> names;
    for (const LabDevice& device : devices_of(policy)) {
      names.push_back(device.name);
    }
    EXPECT_THAT(names, testing::ElementsAre("h1/a", "h2/a", "h2/b"));
    EXPECT_EQ(policy.hosts[0].config.devices[0].memory, 8U << 20U);
    EXPECT_EQ(policy.hosts[1].config.devices[0].memory, 4U << 20U);
    EXPECT_EQ(policy.hosts[1].config.models.size(), 2U);
  }
}

TEST(LabFile, SaysWhatIsWrongWithHosts) {
  const auto wrong = [](const std::string& hosts) {
    const Result<LabFile> lab = parse(kConfig + kTrace + "hosts: " + hosts + "\n");
    return lab ? std::string() : lab.error().message;
  };
  EXPECT_THAT(wrong("{h1: {models: {}}}"), HasSubstr("hosts.h1.models: a host differs by devices"));
  EXPECT_THAT(wrong("{h1: 3}"), HasSubstr("hosts.h1: want a map"));
  EXPECT_THAT(wrong("{\"a b\": {}}"), HasSubstr("hosts: the name of the host cannot be used"));
  EXPECT_THAT(wrong("{h1: {devices: [{name: a, memory: little}]}}"), HasSubstr("hosts.h1: "));
  EXPECT_THAT(wrong("[h1]"), HasSubstr("hosts: want a map"));
}

TEST(ChooseSeeds, TakesACountOrARange) {
  LabFile lab;
  ASSERT_TRUE(choose_seeds("3", lab));
  EXPECT_EQ(lab.first_seed, 0);
  EXPECT_EQ(lab.seeds, 3);
  ASSERT_TRUE(choose_seeds("3..9", lab));
  EXPECT_EQ(lab.first_seed, 3);
  EXPECT_EQ(lab.seeds, 7);
  ASSERT_TRUE(choose_seeds("4..4", lab));
  EXPECT_EQ(lab.first_seed, 4);
  EXPECT_EQ(lab.seeds, 1);
  for (const char* wrong :
       {"0", "-1", "", "x", "3..", "..3", "5..3", "-2..3", "1..2..3", "1001", "0..1000"}) {
    const Result<void> chosen = choose_seeds(wrong, lab);
    ASSERT_FALSE(chosen) << wrong;
    EXPECT_EQ(chosen.error().code, Code::kInvalidArgument);
    EXPECT_THAT(chosen.error().message, testing::HasSubstr("want such as 3 (0 to 2) or 3..5"));
  }
  EXPECT_EQ(lab.first_seed, 4) << "as it was";
}

TEST(LabFile, ATraceMayBeAFileAndPoliciesMayBeLeftOut) {
  const Result<LabFile> lab = parse(
      kConfig +
      "trace: {file: t.csv.gz, from: 1h, window: 10m, keep: 0.1, length: 0.25, cut_input: 300}");
  ASSERT_TRUE(lab) << lab.error().message;
  EXPECT_EQ(lab->trace->path, lab->directory + "/t.csv.gz");
  EXPECT_EQ(lab->trace->window, 10min);
  EXPECT_EQ(lab->trace->keep, 0.1);
  EXPECT_EQ(lab->trace->most_input, 300);
  EXPECT_FALSE(lab->drawn);
  ASSERT_EQ(lab->policies.size(), 1U);
  EXPECT_EQ(lab->policies[0].name, "default");
}

TEST(LabFile, SaysWhatIsWrongAndWhere) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {kConfig, "exp.yaml, line 1: trace: is missing: name a file"},
      {kConfig + "trace: {rate: 4, input_tokens: 1, output_tokens: 1}",
       "exp.yaml, line 6: trace.duration: is missing"},
      {kConfig + "trace: {rate: -4, duration: 1s, input_tokens: 1, output_tokens: 1}",
       "exp.yaml, line 6: trace.rate: \"-4\" is not a number from"},
      {kConfig + "trace: {rate: 4, duration: 1s, input_tokens: 9..3, output_tokens: 1}",
       "trace.input_tokens: \"9..3\" is no number of tokens; want such as 128 or 64..256"},
      {kConfig + "trace: {file: x, rate: 3}", "trace.rate: is not a known key"},
      {kConfig + kTrace + "seeds: 0", "exp.yaml, line 7: seeds: \"0\" is not a whole number"},
      {kConfig + kTrace + "warmpu: 1s", "did you mean \"warmup\"?"},
      {kConfig + kTrace + "policies: {x: 3}", "policies.x: want a map that is put over config"},
      {kConfig + kTrace + "policies: [x]", "line 7: policies: want a map"},
      {kConfig + kTrace + "policies:\n  x:\n    devices: [{memory: 12}]",
       "devices[0] (cpu0): memory: 12 bytes is less than one page"},
      {kConfig + kTrace + "policies:\n  x:\n    models: {one: {pinn: true}}",
       "exp.yaml, line 9: models.one.pinn: is not a known key; did you mean \"pin\"?"},
      {kConfig + kTrace + "policies:\n  x: {}\n  y:\n    models: {three: {path: a}}",
       "policies.y.models: there must be the same models under all policies"},
      {kTrace + "config: {models: {}}", "config.models: is missing"},
      {"- a", "the document is not a map"},
      {"config: {", "exp.yaml, line"},
  };
  for (const auto& [text, message] : cases) {
    const Result<LabFile> lab = parse(text);
    ASSERT_FALSE(lab) << text;
    EXPECT_EQ(lab.error().code, Code::kInvalidArgument);
    EXPECT_THAT(lab.error().message, HasSubstr(message));
  }
}

}  // namespace
}  // namespace heddle::lab
