#include "gguf/built_in.h"

#include <string>
#include <string_view>
#include <variant>

#include <fmt/format.h>

#include "gguf/blocks.h"
#include "gguf/gguf_encoder.h"
#include "gguf/gguf_model.h"
#include "gguf/pre_tokenizers.h"

namespace heddle::gguf {
namespace {

/// The text of a key; empty where there is none.
std::string_view text_of(const GgufFile& file, std::string_view key) {
  const Value* value = file.find(key);
  const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  return text != nullptr ? *text : std::string_view();
}

Error refusal(const GgufFile& file, const std::string& what) {
  return {Code::kInvalidArgument, fmt::format("{}: {}", file.name, what)};
}

}  // namespace

Result<void> check_built_in(const GgufFile& file) {
  if (const auto spec = model_spec(file); !spec) {
    return spec.error();
  }
  if (const auto sentences = sentence_files(file); !sentences) {
    return sentences.error();
  }
  for (const Tensor& tensor : file.tensors) {
    const BlockShape shape = block_shape(tensor.type);
    if (!shape.decodes) {
      return refusal(file, fmt::format("tensor \"{}\" has type {}", tensor.name, shape.name));
    }
  }
  const std::string_view kind = text_of(file, "tokenizer.ggml.model");
  const std::string_view cut = text_of(file, "tokenizer.ggml.pre");
  if (kind != "llama" && kind != "gpt2" && kind != "bert" && kind != "t5" && kind != "gemma4") {
    return refusal(file, fmt::format("key \"tokenizer.ggml.model\" is \"{}\"", kind));
  }
  if (kind == "gpt2" && !cut.empty() && find_pre_tokenizer(cut) == nullptr) {
    return refusal(file, fmt::format("key \"tokenizer.ggml.pre\" is \"{}\"", cut));
  }
  return {};
}

}  // namespace heddle::gguf
