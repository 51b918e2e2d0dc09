#include "config/macros.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

struct Expanded {
  Node root{};
  Ports ports{};
  Diagnosis diagnosis{.origin = "f"};
  /// The value under these keys, as JSON.
  [[nodiscard]] std::string at(const std::vector<std::string>& keys) const {
    const Node* node = &root;
    for (const std::string& key : keys) {
      const Node* next = nullptr;
      for (const Node& child : node->children) {
        next = child.key == key ? &child : next;
      }
      if (next == nullptr) {
        return "absent";
      }
      node = next;
    }
    return to_json(*node);
  }
};

Expanded expanded(std::string_view text) {
  Expanded result;
  const Result<Node> root = parse_document(text, "f", [](const std::string& name) {
    return name == "HOME" ? std::optional<std::string>("/home/u") : std::nullopt;
  });
  EXPECT_TRUE(root) << root.error().message;
  result.root = *root;
  result.ports = expand_macros(result.root, result.diagnosis);
  return result;
}

TEST(Macros, NameOthersAndAreOverriddenByModels) {
  const Expanded result = expanded(R"(
macros: {ctx: 4096, args: "--ctx ${ctx}", dir: "${env.HOME}/m"}
models:
  a: {cmd: "x ${args} ${dir}/${MODEL_ID}"}
  b: {macros: {ctx: 8}, cmd: "x ${args}"}
)");
  EXPECT_THAT(result.diagnosis.problems, IsEmpty());
  EXPECT_THAT(result.at({"models", "a", "cmd"}), HasSubstr("x --ctx 4096 /home/u/m/a"));
  EXPECT_THAT(result.at({"models", "b", "cmd"}), HasSubstr("x --ctx 8"));
}

TEST(Macros, KeepTheirTypeWhereTheyAreAllOfTheValue) {
  const Expanded result = expanded(R"(
macros: {temp: 0.7, on: true, word: "5"}
models:
  a:
    cmd: x ${PORT}
    metadata: {t: "${temp}", on: "${on}", w: "${word}", both: "${temp}${temp}", p: "${PORT}",
               l: ["${MODEL_ID}"]}
    filters: {setParamsByID: {"${MODEL_ID}:low": {x: 1}}}
)");
  EXPECT_THAT(result.diagnosis.problems, IsEmpty());
  EXPECT_EQ(result.at({"models", "a", "metadata"}),
            R"({"t":0.7,"on":true,"w":"5","both":"0.70.7","p":5800,"l":["a"]})");
  EXPECT_EQ(result.at({"models", "a", "filters"}), R"({"setParamsByID":{"a:low":{"x":1}}})");
}

TEST(Macros, PortsAreGivenInTheOrderOfIdsAndAroundThoseThatAreTaken) {
  const Expanded result = expanded(R"(
startPort: 100
listen: ["127.0.0.1:101"]
models:
  d: {cmd: "run ${PORT}", proxy: "http://127.0.0.1:${PORT}/v9"}
  c: {engine: vllm, path: x}
  b: {path: x}
  a: {cmd: "run ${PORT} ${PID}", cmdStop: "kill ${PID} ${PORT}"}
  e: {cmd: run --port 102, proxy: "http://127.0.0.1:102"}
  f: {proxy: "http://127.0.0.1:103"}
)");
  EXPECT_THAT(result.diagnosis.problems, IsEmpty());
  EXPECT_THAT(result.ports, ElementsAre(Pair("a", 100), Pair("c", 104), Pair("d", 105)));
  EXPECT_THAT(result.at({"models", "a", "cmd"}), HasSubstr("run 100 ${PID}"));
  EXPECT_THAT(result.at({"models", "a", "cmdStop"}), HasSubstr("kill ${PID} 100"));
  EXPECT_EQ(result.at({"models", "d", "proxy"}), R"("http://127.0.0.1:105/v9")");
}

TEST(Macros, WhatIsInCommentsDoesNotMatter) {
  const Expanded result = expanded("models:\n  a:\n    cmd: |\n      # ${nothing}\n      run\n");
  EXPECT_THAT(result.diagnosis.problems, IsEmpty());
}

TEST(Macros, WhatIsWrongIsToldWithItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"models:\n  a:\n    cmd: ${nothing}", "line 3: the macro ${nothing} is not defined"},
      {"macros: {a: '${b}', b: '${a}'}\ndataDir: ${a}", "line 2: macros name each other"},
      {"macros: {PORT: 3}", "line 1: macros.PORT: is a name that has its own meaning"},
      {"macros: {'a b': 3}", "macros.a b: is no name of a macro"},
      {"models: {m: {macros: {a: [1]}}}", "models.m.macros.a: is no single value"},
      {"startPort: 0\nmodels: {}", "startPort: \"0\" is not a port"},
      {"startPort: 65535\nmodels: {a: {cmd: x}, b: {cmd: y}}", "models.b: no port is left"},
  };
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT(expanded(text).diagnosis.problems, ElementsAre(HasSubstr(problem))) << text;
  }
}

TEST(Macros, ThatMultiplyAreStopped) {
  std::string text = "macros:\n  m0: xxxxxxxxxx\n";
  for (int i = 1; i <= 12; ++i) {
    const std::string one = "${m" + std::to_string(i - 1) + "}";
    text += "  m" + std::to_string(i) + ": '";
    for (int times = 0; times < 10; ++times) {
      text += one;
    }
    text += "'\n";
  }
  EXPECT_THAT(expanded(text + "dataDir: ${m12}\n").diagnosis.problems,
              ElementsAre(HasSubstr("longer than is reasonable")));
}

}  // namespace
}  // namespace heddle::config
