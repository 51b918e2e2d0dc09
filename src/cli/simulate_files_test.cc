#include "cli/simulate_files.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

namespace heddle::cli {
namespace {

/// The rules of a model file that says this of its only model.
Result<std::vector<ModelRule>> rules_of(const std::string& line) {
  const std::string file = testing::TempDir() + "models-" + std::to_string(::getpid()) + ".yaml";
  std::ofstream(file) << "models:\n  a: {shape: s, engine: e, " << line << "}\n";
  return load_model_rules(file, {.shapes = {{"s", {}}}, .engines = {{"e", {}}}});
}

TEST(LoadModelRules, AnExternalEngineMayBeCalledByItsOldName) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(rules_of("external: true").value().at(0).spec.external);
  EXPECT_FALSE(rules_of("external: false").value().at(0).spec.external);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");

  testing::internal::CaptureStderr();
  EXPECT_TRUE(rules_of("foreign: true").value().at(0).spec.external);  // Old name.
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("is the old name of \"external\""));
}

}  // namespace
}  // namespace heddle::cli
