// What `heddle bench` hears from other people's endpoints: chunks and answers, whatever they
// are.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "bench/answer_parser.h"
#include "bench/endpoint.h"

using namespace heddle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static bench::AnswerParser parser;  // One for a run, as in life.
  const bench::AnswerNews news = parser.parse(text);
  HEDDLE_CHECK(news.prompt_tokens.value_or(0) >= 0 && news.completion_tokens.value_or(0) >= 0);
  const auto endpoint = bench::parse_endpoint(text);
  if (endpoint) {
    const auto again = bench::parse_endpoint(endpoint->url());
    HEDDLE_CHECK(again && *again == *endpoint);
  } else {
    HEDDLE_CHECK(!endpoint.error().message.empty());
  }
  return 0;
}
