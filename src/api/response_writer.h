#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "api/answer_writer.h"
#include "spec/sampling.h"

namespace heddle::api {

/// The writer of /v1/responses: an answer is a list of items (thoughts, messages, calls), and a
/// stream tells by named and numbered events how it grows.
/// @param settings  As in ResponseRequest.
/// @param used      How its tokens are drawn.
/// @param now       The time [seconds since 1970], asked for once the answer is complete.
[[nodiscard]] std::unique_ptr<AnswerWriter> response_writer(AnswerHead head,
                                                            std::string settings,
                                                            const spec::SamplingParams& used,
                                                            std::function<std::int64_t()> now);

}  // namespace heddle::api
