#include "cli/simulate_files.h"

#include <filesystem>
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

TEST(FindPerfFolder, LooksBesideTheClusterFileAndSaysWhatItTried) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / ("perf-" + std::to_string(::getpid()));
  fs::create_directories(root / "data" / "perf");
  fs::create_directories(root / "mine");
  fs::create_directories(root / "clusters");
  const std::string cluster = (root / "clusters" / "c.yaml").string();
  std::ofstream(root / "clusters" / "own.yaml") << "";

  const auto missing = find_perf_folder("own", cluster);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message,
              testing::AllOf(testing::HasSubstr((root / "clusters" / "own").string()),
                             testing::HasSubstr((fs::current_path() / "own").string()),
                             testing::HasSubstr("--perf")));

  std::ofstream(root / "data" / "perf" / "gpus.yaml") << "gpus: {}\n";
  std::ofstream(root / "mine" / "gpus.yaml") << "gpus: {}\n";
  const fs::path before = fs::current_path();
  fs::current_path("/");
  EXPECT_EQ(find_perf_folder("", cluster).value(), (root / "data" / "perf").string());
  EXPECT_EQ(find_perf_folder("../mine", cluster).value(), (root / "mine").string());
  EXPECT_EQ(find_perf_folder((root / "mine").string(), cluster).value(), (root / "mine").string());
  fs::current_path(before);
  fs::remove_all(root);
}

}  // namespace
}  // namespace heddle::cli
