#include "gateway/grammar_text.h"

#include <optional>

#include "base/ids.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

std::string literal(std::string_view text) {
  spec::JsonWriter json;
  json.string(text);
  return std::move(json).take();
}

std::string marker(std::string_view text, const text::Tokenizer& tokenizer) {
  const std::optional<TokenId> id = tokenizer.token_to_id(text);
  return id && tokenizer.is_special(*id) ? "<[" + std::to_string(*id) + "]>" : literal(text);
}

}  // namespace heddle::gateway
