// tokenizer.json, tokenizer_config.json and a text: whatever the files, they are refused or make a
// tokenizer whose tokens, one after the other, say what they say together. An input that begins
// with a byte above 127 is what to make the first file by.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "choices.h"
#include "make_tokenizer.h"
#include "split.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

using namespace heddle;

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  heddle::log::configure({.level = heddle::log::Level::kError});  // Panics of the library are many.
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto [written, written_config, rest] = fuzz::split<3>(input);
  std::string tokenizer_json(written);
  std::string config_json(written_config);
  std::string text(rest);
  if (size > 0 && data[0] > 127) {
    fuzz::Choices choices(data + 1, size - 1);
    tokenizer_json = fuzz::make_tokenizer(choices);
    config_json.clear();
    text = "ab aab\n 12 é日 \U0001F600 " + std::string(40, 'a') + std::string(input.substr(0, 40));
  }
  const auto tokenizer = text::Tokenizer::open(tokenizer_json, config_json);
  if (!tokenizer) {
    HEDDLE_CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  const auto ids = (*tokenizer)->encode(text, text::SpecialTokens::kAdd);
  if (!ids) {
    return 0;
  }
  for (const TokenId id : *ids) {
    HEDDLE_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
  }
  for (const auto show : {text::ShowSpecial::kNo, text::ShowSpecial::kYes}) {
    text::Detokenizer pieces(*tokenizer, show);
    std::string streamed;
    for (const TokenId id : *ids) {
      streamed += pieces.push(id);
    }
    streamed += pieces.flush();
    const auto whole = (*tokenizer)->decode(*ids, show);
    HEDDLE_CHECK(whole.has_value() && *whole == streamed);
  }
  return 0;
}
