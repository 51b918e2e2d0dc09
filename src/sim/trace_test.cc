#include "sim/trace.h"

#include <gtest/gtest.h>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// The one request of a line.
ParsedRow row(TraceParser& parser, std::string_view line) {
  const Result<std::optional<ParsedRow>> parsed = parser.parse(line);
  EXPECT_TRUE(parsed) << line;
  return parsed ? parsed->value_or(ParsedRow{}) : ParsedRow{};
}

std::string problem(TraceParser& parser, std::string_view line) {
  const Result<std::optional<ParsedRow>> parsed = parser.parse(line);
  return parsed ? "" : parsed.error().message;
}

void header(TraceParser& parser, std::string_view line) {
  const Result<std::optional<ParsedRow>> parsed = parser.parse(line);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_FALSE(parsed->has_value());
}

TEST(TraceParser, Heddle) {
  TraceParser parser;
  header(parser, "arrival_s,model,input_tokens,output_tokens,prefix_hashes");
  const ParsedRow first = row(parser, "0.000001,a,16,17,0 1 2");
  EXPECT_EQ(first.arrival, Instant(1us));
  EXPECT_EQ(first.model, "a");
  EXPECT_EQ(first.input_tokens, 16);
  EXPECT_EQ(first.output_tokens, 17);
  EXPECT_EQ(row(parser, "100000.25,b,1,0,").arrival, Instant(100'000s + 250ms));
}

TEST(TraceParser, AzureCountsFromItsFirstRow) {
  TraceParser parser;
  header(parser, "TIMESTAMP,ContextTokens,GeneratedTokens\r");
  EXPECT_EQ(row(parser, "2023-11-16 18:17:03.9799600,4808,10\r").arrival, Instant{});
  const ParsedRow next = row(parser, "2023-11-16 18:17:04.0319600,3180,8");
  EXPECT_EQ(next.arrival, Instant(52ms));
  EXPECT_EQ(next.input_tokens, 3180);
  EXPECT_TRUE(next.model.empty());
  EXPECT_EQ(row(parser, "2023-12-01 00:00:00+00:00,1,1").arrival,
            Instant(14 * 24h + 5h + 42min + 56s + 20040us));
}

TEST(TraceParser, RefusesDatesThatNanosecondsDoNotReach) {
  for (const char* date : {"4046-11-16 18:17:03", "1903-11-16 18:17:03"}) {
    TraceParser parser;
    header(parser, "TIMESTAMP,ContextTokens,GeneratedTokens");
    const auto parsed = parser.parse(std::string(date) + ",3,4");
    ASSERT_FALSE(parsed) << date;
    EXPECT_EQ(parsed.error().code, Code::kCorrupt);
  }
}

TEST(TraceParser, BurstGpt) {
  TraceParser parser;
  header(parser, "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type");
  const ParsedRow first = row(parser, "5,ChatGPT,472,18,490,Conversation log");
  EXPECT_EQ(first.arrival, Instant(5s));
  EXPECT_EQ(first.model, "ChatGPT");
  EXPECT_EQ(first.output_tokens, 18);
}

TEST(TraceParser, ServeGen) {
  TraceParser parser;
  header(parser, "request_id,timestamp,input_tokens,output_tokens");
  EXPECT_EQ(row(parser, "0,1.5,10,20").arrival, Instant(1500ms));
}

TEST(TraceParser, Mooncake) {
  TraceParser parser;
  const ParsedRow first = row(
      parser,
      R"({"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]})");
  EXPECT_EQ(first.arrival, Instant(27482ms));
  EXPECT_EQ(first.input_tokens, 6955);
  EXPECT_EQ(first.output_tokens, 52);
}

TEST(TraceParser, BadRowsSayWhyAndReadingGoesOn) {
  TraceParser parser;
  header(parser, "arrival_s,model,input_tokens,output_tokens");
  EXPECT_EQ(problem(parser, "x,a,1,1"), "arrival \"x\" is neither seconds nor a date");
  EXPECT_EQ(problem(parser, "1,a,-1,1"), "input \"-1\" is not a number of tokens");
  EXPECT_EQ(problem(parser, "1,a,1,1.5"), "output \"1.5\" is not a number of tokens");
  EXPECT_EQ(problem(parser, "1,a"), "it has 2 columns; want at least 4");
  EXPECT_EQ(row(parser, "5,a,1,1").arrival, Instant(5s));
  EXPECT_EQ(problem(parser, "4,a,1,1"),
            "it arrives before the row above; want rows in order of arrival");
  EXPECT_EQ(row(parser, "5,a,1,1").arrival, Instant(5s));
}

TEST(TraceParser, AnUnknownHeaderIsAnError) {
  TraceParser parser;
  EXPECT_NE(problem(parser, "when,what"), "");
}

TEST(DecimalNanoseconds, IsExact) {
  EXPECT_EQ(decimal_nanoseconds("0.1"), 100'000'000);
  EXPECT_EQ(decimal_nanoseconds("123456.123456789"), 123'456'123'456'789);
  EXPECT_EQ(decimal_nanoseconds("1.0000000019"), 1'000'000'001);
  for (const char* bad : {"", "-1", "1e3", ".", "1.2.3", "nan", "-0.5", "99999999999"}) {
    EXPECT_EQ(decimal_nanoseconds(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace heddle::sim
