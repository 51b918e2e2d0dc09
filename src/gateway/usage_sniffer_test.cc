#include "gateway/usage_sniffer.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::gateway {
namespace {

TEST(UsageSniffer, ReadsWholeAnswers) {
  UsageSniffer sniffer;
  sniffer.see(R"({"id":"x","choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":99}"}}],
      "usage" : {"prompt_tokens": 12, "completion_tokens":34,"total_tokens":46,
      "prompt_tokens_details":{"cached_tokens":5}}})");
  EXPECT_EQ(sniffer.prompt_tokens(), 12);
  EXPECT_EQ(sniffer.completion_tokens(), 34);
  EXPECT_EQ(sniffer.cached_tokens(), 5);
}

TEST(UsageSniffer, ReadsWhatStandsAtTheEndOfOllamasAnswers) {
  const std::string answer = R"({"response":"\"eval_count\":9","done":false}
{"done":true,"context":[)" + std::string(5000, '1') +
                             R"(],"prompt_eval_count":12,"eval_count":34,"eval_duration":5})";
  for (const std::size_t cut : {std::size_t{1}, std::size_t{7}, answer.size()}) {
    UsageSniffer sniffer(/*ollama=*/true);
    for (std::size_t at = 0; at < answer.size(); at += cut) {
      sniffer.see(std::string_view(answer).substr(at, cut));
    }
    EXPECT_EQ(sniffer.prompt_tokens(), 12) << cut;
    EXPECT_EQ(sniffer.completion_tokens(), 34) << cut;
  }
}

TEST(UsageSniffer, KnowsNothingOfAnswersWithoutOne) {
  UsageSniffer sniffer;
  sniffer.see(R"(data: {"choices":[{"delta":{"content":"usage"}}],"usage":null})");
  sniffer.see(std::string(5000, '"'));
  sniffer.see(R"("usage":{)" + std::string(5000, 'x'));
  EXPECT_EQ(sniffer.prompt_tokens(), std::nullopt);
  EXPECT_EQ(sniffer.completion_tokens(), std::nullopt);
}

// Anthropic tells the prompt at the beginning and the completion at the end; whatever way the
// network cuts the stream, the same is found.
TEST(UsageSniffer, ReadsEventsHoweverTheyAreCut) {
  const std::string stream =
      "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,"
      "\"output_tokens\":1}}}\n\n"
      "data: {\"delta\":{\"text\":\"say \\\"usage\\\":{\\\"output_tokens\\\":7}\"}}\n\n"
      "data: {\"usage\":null}\n\ndata: {\"x\":1,\"usage\": {\"output_tokens\" : 15}}\n\n";
  const std::uint64_t seed = 7;
  for (std::uint64_t round = 0; round < 500; ++round) {
    Rng rng(seed + round);
    UsageSniffer sniffer;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t size = 1 + rng.below(round % 2 == 0 ? 3 : 60);
      sniffer.see(std::string_view(stream).substr(at, size));
      at += size;
    }
    ASSERT_EQ(sniffer.prompt_tokens(), 25) << "seed " << seed + round;
    ASSERT_EQ(sniffer.completion_tokens(), 15) << "seed " << seed + round;
  }
}

}  // namespace
}  // namespace heddle::gateway
