#include "gguf/token_ids.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace heddle::gguf {

void write_token_ids(MetadataFields& fields, spec::JsonWriter& json) {
  // Null: what a config.json without the key would mean is not what a file without it does.
  constexpr std::string_view kBos = "tokenizer.ggml.bos_token_id";
  json.key("bos_token_id");
  fields.has(kBos) ? json.integer(fields.integer(kBos)) : json.null();
  json.key("eos_token_id").begin_array();
  for (const std::string_view name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const std::string full = fmt::format("tokenizer.ggml.{}", name);
    if (fields.has(full)) {
      json.integer(fields.integer(full));
    }
  }
  json.end_array();
}

}  // namespace heddle::gguf
