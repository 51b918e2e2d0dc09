#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "config/engine_config.h"
#include "gateway/http_exchange.h"

/// Bodies of requests that may be forwarded: JSON objects and forms (multipart/form-data).
namespace heddle::gateway {

/// What a body says that we have to know.
struct BodyFacts {
  std::string model{};  ///< As the client calls it; empty where it names none.
  bool stream = false;
  std::optional<std::int64_t> priority{};  ///< Lower goes first.
  std::int64_t max_tokens = 0;             ///< Of the answer; 0 where it names no length.
};

/// kInvalidArgument for what is neither.
Result<BodyFacts> read_facts(const HttpRequest& request);

/// The body as it goes to who serves a model that the client called `name`: without what the
/// filters strip, with what they set, and with the name that the model is `served` by, where that
/// is not empty. All other bytes stay as they were. Forms get the name only. Of a body that
/// read_facts() has read.
[[nodiscard]] std::string filtered_body(const HttpRequest& request,
                                        const config::RequestFilters& filters,
                                        const std::string& served,
                                        const std::string& name);

}  // namespace heddle::gateway
