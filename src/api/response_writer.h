#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/answer_writer.h"
#include "api/conversation.h"
#include "spec/sampling.h"

namespace heddle::api {

/// What a response has of its request, and who hears of it.
struct ResponseForm {
  std::string settings{};                   ///< As in ResponseRequest.
  std::vector<std::string> custom_tools{};  ///< Whose calls are told as those of custom tools.
  /// Gets a response that has come to its end, as a body, and what it adds to the conversation.
  std::function<void(const std::string& response, Turns answer)> complete{};
};

/// The writer of /v1/responses: an answer is a list of items (thoughts, messages, calls), and a
/// stream tells by named and numbered events how it grows.
/// @param used  How its tokens are drawn.
/// @param now   The time [seconds since 1970], asked for once the answer is complete.
[[nodiscard]] std::unique_ptr<AnswerWriter> response_writer(AnswerHead head,
                                                            ResponseForm form,
                                                            const spec::SamplingParams& used,
                                                            std::function<std::int64_t()> now);

}  // namespace heddle::api
