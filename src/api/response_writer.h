#pragma once

#include <memory>
#include <string>

#include "api/answer_writer.h"

namespace heddle::api {

/// The writer of /v1/responses: an answer is a list of items (thoughts, messages, calls), and a
/// stream tells by named and numbered events how it grows.
/// @param settings  As in ResponseRequest.
[[nodiscard]] std::unique_ptr<AnswerWriter> response_writer(AnswerHead head, std::string settings);

}  // namespace heddle::api
