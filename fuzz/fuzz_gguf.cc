// A GGUF file: tensors that are accepted lie within it and apart from each other, and what is made
// of its metadata is JSON.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "gguf/gguf_encoder.h"
#include "gguf/gguf_model.h"
#include "gguf/gguf_text.h"
#include "gguf/header.h"
#include "gguf/tensor_names.h"
#include "spec/json.h"

namespace gguf = heddle::gguf;

namespace {

void check_tensors(const gguf::Header& header, std::uint64_t size) {
  std::set<std::string_view> names;
  std::uint64_t end = header.bytes;
  for (const gguf::Tensor& tensor : header.tensors) {
    HEDDLE_CHECK(tensor.offset >= end && tensor.bytes <= size &&
                 tensor.offset <= size - tensor.bytes);
    end = tensor.offset + tensor.bytes;
    HEDDLE_CHECK(names.insert(tensor.name).second);
    (void)gguf::tensor_name(gguf::directory_name(tensor.name, heddle::spec::Architecture::kMixtral),
                            heddle::spec::Architecture::kMixtral);
  }
}

void check_texts(gguf::GgufFile file) {
  // Their numbers would be read from a file, and there is none.
  std::erase_if(file.tensors, [](const gguf::Tensor& t) { return t.name.starts_with("rope_f"); });
  for (const gguf::DirectoryTensor& tensor : gguf::directory_tensors(file)) {
    HEDDLE_CHECK(tensor.stored.bytes <= file.tensor(tensor.stored.name)->bytes);
  }
  if (const auto model = gguf::model_spec(file)) {
    HEDDLE_CHECK(model->head_dim > 0 && model->vocab > 0);
  }
  HEDDLE_CHECK(heddle::spec::parse_json(gguf::generation_config_json(file), "g").has_value());
  for (const auto& texts : {gguf::tokenizer_files(file), gguf::sentence_files(file)}) {
    if (texts) {
      for (const auto& [name, text] : *texts) {
        HEDDLE_CHECK(heddle::spec::parse_json(text, name).has_value());
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const gguf::ReadAt read = [&](std::uint64_t offset,
                                std::span<std::byte> target) -> heddle::Result<void> {
    HEDDLE_CHECK(offset <= size && target.size() <= size - offset);
    std::memcpy(target.data(), data + offset, target.size());
    return {};
  };
  for (const gguf::Keep keep : {gguf::Keep::kSmall, gguf::Keep::kAll}) {
    auto header = gguf::parse_header(read, size, "m", keep);
    if (!header) {
      HEDDLE_CHECK(header.error().message.starts_with("m: "));
      return 0;
    }
    check_tensors(*header, size);
    if (keep == gguf::Keep::kAll) {
      check_texts({.metadata = std::move(header->metadata),
                   .tensors = std::move(header->tensors),
                   .name = "m"});
    }
  }
  return 0;
}
