#pragma once

// For tests only: parsers of answers, fed in portions.

#include <cstddef>
#include <string_view>

#include <gtest/gtest.h>

namespace heddle::text {

/// All of an answer that comes in portions of `step` characters.
template <class Parser>
typename Parser::Found in_portions(Parser parser,
                                   std::string_view answer,
                                   std::size_t step,
                                   bool cut = false) {
  typename Parser::Found all;
  const auto add = [&all](typename Parser::Found found) {
    all.reasoning += found.reasoning;
    all.text += found.text;
    all.calls.insert(all.calls.end(), found.calls.begin(), found.calls.end());
  };
  for (std::size_t at = 0; at < answer.size(); at += step) {
    add(parser.push(answer.substr(at, step)));
  }
  add(parser.finish(cut));
  return all;
}

/// The same, which is expected to be one whatever the portions are.
template <class Parser>
typename Parser::Found in_any_portions(const Parser& parser, std::string_view answer, bool cut) {
  const typename Parser::Found whole = in_portions(parser, answer, answer.size() + 1, cut);
  for (const std::size_t step : {1U, 2U, 3U, 7U}) {
    const typename Parser::Found parts = in_portions(parser, answer, step, cut);
    EXPECT_EQ(parts.reasoning, whole.reasoning) << "in portions of " << step;
    EXPECT_EQ(parts.text, whole.text) << "in portions of " << step;
    EXPECT_EQ(parts.calls, whole.calls) << "in portions of " << step;
  }
  return whole;
}

}  // namespace heddle::text
