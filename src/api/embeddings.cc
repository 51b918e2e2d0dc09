#include "api/embeddings.h"

#include <bit>
#include <cmath>
#include <utility>

#include "api/generation_params.h"
#include "base/base64.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace {

constexpr std::size_t kInputsMax = 2048;
constexpr std::int64_t kDimensionsMax = 65536;

/// Little-endian, whatever the processor is.
std::string bytes_of(const std::vector<float>& numbers) {
  std::string bytes;
  bytes.reserve(4 * numbers.size());
  for (const float number : numbers) {
    const auto word = std::bit_cast<std::uint32_t>(number);
    for (unsigned byte = 0; byte < 4; ++byte) {
      bytes += static_cast<char>((word >> (8 * byte)) & 0xFFU);
    }
  }
  return bytes;
}

}  // namespace

Parsed<EmbeddingRequest> parse_embedding_request(std::string_view text) {
  BodyReader body(text);
  EmbeddingRequest request;
  request.model = body.required_text("model", kModelExample);
  request.inputs = read_prompts(body, "input", kInputsMax);
  const std::string format = body.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    body.fail(invalid_request(
        "encoding_format", "encoding_format: is \"" + format + R"("; want "float" or "base64")"));
  }
  request.base64 = format == "base64";
  request.dimensions = body.integer("dimensions", 1, kDimensionsMax);
  request.add_special_tokens = body.flag("add_special_tokens").value_or(true);
  request.priority =
      static_cast<std::int32_t>(body.integer("priority", -1'000'000, 1'000'000).value_or(0));
  request.keep_alive = read_keep_alive(body);
  request.truncate = read_truncation(body);
  request.warnings = body.take_warnings({"user", "metadata"});
  if (!body.ok()) {
    return body.error();
  }
  return request;
}

void cut(std::vector<float>& embedding, std::optional<std::int64_t> dimensions) {
  if (dimensions && *dimensions < std::ssize(embedding)) {
    embedding.resize(static_cast<std::size_t>(*dimensions));
  }
}

void normalise(std::vector<float>& embedding) {
  double squares = 0.0;
  for (const float number : embedding) {
    squares += static_cast<double>(number) * static_cast<double>(number);
  }
  if (squares > 0.0) {
    for (float& number : embedding) {
      number = static_cast<float>(static_cast<double>(number) / std::sqrt(squares));
    }
  }
}

std::string embeddings_json(const std::string& model,
                            const std::vector<std::vector<float>>& embeddings,
                            std::int64_t prompt_tokens,
                            bool base64) {
  spec::JsonWriter json;
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (std::size_t i = 0; i < embeddings.size(); ++i) {
    json.begin_object().key("object").string("embedding").key("index").integer(i);
    json.key("embedding");
    if (base64) {
      json.string(to_base64(bytes_of(embeddings[i])));
    } else {
      json.begin_array();
      for (const float number : embeddings[i]) {
        json.number(static_cast<double>(number));
      }
      json.end_array();
    }
    json.end_object();
  }
  json.end_array().key("model").string(model).key("usage").begin_object();
  json.key("prompt_tokens").integer(prompt_tokens).key("total_tokens").integer(prompt_tokens);
  json.end_object().end_object();
  return std::move(json).take();
}

}  // namespace heddle::api
