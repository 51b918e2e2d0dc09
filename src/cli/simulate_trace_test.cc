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

/// A line of a collector's file: one span of a request.
std::string span_line(const char* begin_ns, const char* model) {
  return std::string(R"({"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"1","spanId":")") +
         begin_ns + R"(","startTimeUnixNano":")" + begin_ns +
         R"(","attributes":[{"key":"gen_ai.request.model","value":{"stringValue":")" + model +
         R"("}},{"key":"gen_ai.usage.input_tokens","value":{"intValue":"7"}},)" +
         R"({"key":"gen_ai.usage.output_tokens","value":{"intValue":"9"}}]}]}]}]})" + "\n";
}

TEST(SurveyTrace, SpansOfACollectorAreRequests) {
  const std::string file = testing::TempDir() + "spans-" + std::to_string(::getpid()) + ".jsonl";
  std::ofstream(file) << span_line("5000000000", "m") << span_line("1000000000", "m") << "{\n"
                      << span_line("2000000000", "other");
  const TraceOptions options{.file = file, .speed = 2};
  const auto summary = survey_trace(options, {{.label = "m"}});
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary->rows, 2);
  EXPECT_EQ(summary->bad_rows, 2) << "a line that is none, and a model that nobody knows";
  EXPECT_EQ(summary->span, std::chrono::seconds(2));
  const auto source = open_trace(options, summary->models, {});
  ASSERT_TRUE(source);
  sim::TraceRow row;
  ASSERT_TRUE((*source)->next(row));
  EXPECT_EQ(row.arrival, Instant{});
  ASSERT_TRUE((*source)->next(row));
  EXPECT_EQ(row.arrival, Instant(std::chrono::seconds(2)));
  EXPECT_EQ(row.input_tokens, 7);
  EXPECT_FALSE((*source)->next(row));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace heddle::cli
