#pragma once

#include "api/body_reader.h"
#include "spec/sampling.h"

namespace heddle::api {

/// Reads what the answer must look like: OpenAI's `response_format` (text, json_object,
/// json_schema) and vLLM's `structured_outputs` and `guided_json|regex|choice|grammar`. At most one
/// may ask for anything. What is wrong is kept in `body`; whether a grammar can be compiled shows
/// only later.
[[nodiscard]] spec::Grammar read_output_format(BodyReader& body);

/// As read_output_format, of the `text.format` of a request to /v1/responses.
[[nodiscard]] spec::Grammar read_text_format(BodyReader& body);

}  // namespace heddle::api
