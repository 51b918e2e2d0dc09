#pragma once

// For tests only: GGUF files, right or wrong.

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/header.h"

namespace heddle::gguf {

/// The bytes of a number, little-endian.
template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}
inline std::string raw_text(std::string_view text) {
  return raw(std::uint64_t{text.size()}) + std::string(text);
}
inline std::string raw_type(ValueType type) {
  return raw(static_cast<std::uint32_t>(type));
}

/// Builds a file piece by piece, so that a test can make any of them wrong.
class TestGguf {
 public:
  struct Info {
    std::string name{};
    std::vector<std::uint64_t> sizes{};  ///< The contiguous one first, as the format has it.
    std::uint32_t type = 0;
    std::string data{};
    std::uint64_t offset = kAfterLast;
  };
  static constexpr std::uint64_t kAfterLast = ~std::uint64_t{0};

  TestGguf& key(std::string_view key, ValueType type, const std::string& value) {
    keys_ += raw_text(key) + raw_type(type) + value;
    ++key_count_;
    return *this;
  }
  TestGguf& u32(std::string_view name, std::uint32_t value) {
    return key(name, ValueType::kU32, raw(value));
  }
  TestGguf& f32(std::string_view name, float value) {
    return key(name, ValueType::kF32, raw(value));
  }
  TestGguf& flag(std::string_view name, bool value) {
    return key(name, ValueType::kBool, raw(std::uint8_t{value}));
  }
  TestGguf& text(std::string_view name, std::string_view value) {
    return key(name, ValueType::kText, raw_text(value));
  }
  TestGguf& texts(std::string_view name, const std::vector<std::string>& values) {
    std::string body = raw_type(ValueType::kText) + raw(std::uint64_t{values.size()});
    for (const std::string& value : values) {
      body += raw_text(value);
    }
    return key(name, ValueType::kArray, body);
  }
  template <class T>
  TestGguf& numbers(std::string_view name, ValueType type, const std::vector<T>& values) {
    std::string body = raw_type(type) + raw(std::uint64_t{values.size()});
    for (const T value : values) {
      body += raw(value);
    }
    return key(name, ValueType::kArray, body);
  }
  TestGguf& tensor(Info info) {
    tensors_.push_back(std::move(info));
    return *this;
  }
  /// Of float32 zeros.
  TestGguf& zeros(std::string_view name, std::vector<std::uint64_t> sizes) {
    std::uint64_t count = 1;
    for (const std::uint64_t size : sizes) {
      count *= size;
    }
    return tensor({.name = std::string(name),
                   .sizes = std::move(sizes),
                   .data = std::string(count * sizeof(float), '\0')});
  }

  std::uint32_t version = 3;
  std::uint64_t alignment = 32;
  std::uint64_t tensors_more = 0;  ///< How many too many the header says there are,
  std::uint64_t keys_more = 0;     ///< likewise.

  [[nodiscard]] const std::vector<Info>& tensors() const { return tensors_; }
  [[nodiscard]] std::string bytes() const {
    std::string head = "GGUF" + raw(version) + raw(tensors_.size() + tensors_more) +
                       raw(key_count_ + keys_more) + keys_;
    std::string data;
    for (const Info& info : tensors_) {
      data.resize((data.size() + alignment - 1) / alignment * alignment);
      head += raw_text(info.name) + raw(static_cast<std::uint32_t>(info.sizes.size()));
      for (const std::uint64_t size : info.sizes) {
        head += raw(size);
      }
      head += raw(info.type);
      head += raw(info.offset == kAfterLast ? std::uint64_t{data.size()} : info.offset);
      data += info.data;
    }
    head.resize((head.size() + alignment - 1) / alignment * alignment);
    return head + data;
  }

 private:
  std::string keys_{};
  std::uint64_t key_count_ = 0;
  std::vector<Info> tensors_{};
};

/// The header of these bytes, as a file that messages call "m".
inline Result<Header> parse(const std::string& bytes, Keep keep = Keep::kAll) {
  const ReadAt read = [&bytes](std::uint64_t offset, std::span<std::byte> target) -> Result<void> {
    std::memcpy(target.data(), bytes.data() + offset, target.size());
    return {};
  };
  return parse_header(read, bytes.size(), "m", keep);
}

/// A small model of an architecture, without tensors but for the embeddings of `vocab` rows.
inline TestGguf small_model(const std::string& architecture = "llama", std::uint64_t vocab = 8) {
  TestGguf file;
  file.text("general.architecture", architecture);
  for (const auto& [key, value] :
       std::map<std::string, std::uint32_t>{{"embedding_length", 16},
                                            {"attention.head_count", 4},
                                            {"attention.head_count_kv", 2},
                                            {"block_count", 2},
                                            {"feed_forward_length", 24},
                                            {"context_length", 64}}) {
    file.u32(architecture + "." + key, value);
  }
  file.f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F);
  file.zeros("token_embd.weight", {16, vocab});
  return file;
}

}  // namespace heddle::gguf
