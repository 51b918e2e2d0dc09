#include "cli/simulate_trace.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <zlib.h>

namespace heddle::cli {
namespace {

/// A compressed trace of so many requests of model "m".
std::string write_trace(int rows) {
  const std::string file = testing::TempDir() + "trace-" + std::to_string(::getpid()) + ".csv.gz";
  gzFile out = gzopen(file.c_str(), "wb");
  std::string text = "arrival_s,model,input_tokens,output_tokens\n";
  for (int i = 0; i < rows; ++i) {
    text += std::to_string(i) + ",m," + std::to_string(i % 97 + 1) + ",5\n";
  }
  gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  gzclose(out);
  return file;
}

TEST(SurveyTrace, AFileThatWasCutOffIsAnError) {
  const std::string file = write_trace(5000);
  const std::vector<ModelRule> rules{{.label = "m"}};
  EXPECT_EQ(survey_trace({.file = file}, rules).value().rows, 5000);

  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  const auto cut = survey_trace({.file = file}, rules);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, Code::kCorrupt);
  EXPECT_THAT(cut.error().message,
              testing::AllOf(testing::HasSubstr(file), testing::HasSubstr("broken after line")));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace heddle::cli
