#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

/// The C side of rust/src: what libheddle_text.a exports, and the two types that make calling it
/// safe. Included by sources of src/text only.
///
/// Every call returns a code and, unless that is kOk, leaves a message in `error`. No call unwinds.
/// Handles are immutable and may be used by any number of threads at once, but for a grammar, which
/// is the state of one answer and belongs to one thread at a time.
extern "C" {

// NOLINTBEGIN(readability-identifier-naming): names of the C ABI.
struct heddle_text_tokenizer;
struct heddle_text_template;
struct heddle_text_vocabulary;
struct heddle_text_grammar;

struct heddle_text_bytes {
  const std::uint8_t* data;
  std::size_t len;
};

/// Memory of the Rust side, given back with the free function of its element type.
struct heddle_text_byte_buffer {
  std::uint8_t* data;
  std::size_t len;
  std::size_t capacity;
};

struct heddle_text_id_buffer {
  std::uint32_t* data;
  std::size_t len;
  std::size_t capacity;
};

/// Rules of a tokenizer's decoder that concern the text as a whole; see
/// rust/src/tokenizer/pieces.rs.
struct heddle_text_rules {
  std::uint32_t id_limit;
  std::uint32_t strip_count;
  std::uint32_t strip;
};

struct heddle_text_render_arguments {
  heddle_text_bytes messages;
  heddle_text_bytes tools;
  heddle_text_bytes variables;
  std::int64_t now;
  bool add_generation_prompt;
};

void heddle_text_free_bytes(heddle_text_byte_buffer buffer);
void heddle_text_free_ids(heddle_text_id_buffer buffer);

std::int32_t heddle_text_tokenizer_open(heddle_text_bytes tokenizer_json,
                                        heddle_text_bytes config_json,
                                        heddle_text_tokenizer** out,
                                        heddle_text_byte_buffer* error);
void heddle_text_tokenizer_free(heddle_text_tokenizer* tokenizer);
std::int32_t heddle_text_encode(const heddle_text_tokenizer* tokenizer,
                                heddle_text_bytes text,
                                bool add_special,
                                heddle_text_id_buffer* out,
                                heddle_text_byte_buffer* error);
std::int32_t heddle_text_encode_pair(const heddle_text_tokenizer* tokenizer,
                                     heddle_text_bytes text,
                                     const heddle_text_bytes* second,
                                     std::size_t most,
                                     heddle_text_id_buffer* out,
                                     std::size_t* second_begin,
                                     heddle_text_byte_buffer* error);
std::int32_t heddle_text_decode(const heddle_text_tokenizer* tokenizer,
                                const std::uint32_t* ids,
                                std::size_t count,
                                bool skip_special,
                                heddle_text_byte_buffer* out,
                                heddle_text_byte_buffer* error);
std::int32_t heddle_text_token_to_id(const heddle_text_tokenizer* tokenizer,
                                     heddle_text_bytes token,
                                     std::int64_t* out,
                                     heddle_text_byte_buffer* error);
std::int32_t heddle_text_pieces(const heddle_text_tokenizer* tokenizer,
                                heddle_text_rules* rules,
                                heddle_text_byte_buffer* out,
                                heddle_text_byte_buffer* error);

std::int32_t heddle_text_template_compile(heddle_text_bytes source,
                                          heddle_text_bytes defaults,
                                          heddle_text_template** out,
                                          heddle_text_byte_buffer* error);
void heddle_text_template_free(heddle_text_template* compiled);
std::int32_t heddle_text_template_render(const heddle_text_template* compiled,
                                         const heddle_text_render_arguments* arguments,
                                         heddle_text_byte_buffer* out,
                                         heddle_text_byte_buffer* error);

std::int32_t heddle_text_vocabulary_open(const heddle_text_tokenizer* tokenizer,
                                         const std::uint32_t* eos,
                                         std::size_t eos_count,
                                         std::size_t size,
                                         heddle_text_vocabulary** out,
                                         heddle_text_byte_buffer* error);
void heddle_text_vocabulary_free(heddle_text_vocabulary* vocabulary);
std::int32_t heddle_text_grammar_open(const heddle_text_vocabulary* vocabulary,
                                      std::uint32_t kind,
                                      heddle_text_bytes text,
                                      std::uint32_t thought,
                                      heddle_text_grammar** out,
                                      heddle_text_byte_buffer* error);
std::int32_t heddle_text_grammar_clone(const heddle_text_grammar* grammar,
                                       heddle_text_grammar** out,
                                       heddle_text_byte_buffer* error);
void heddle_text_grammar_free(heddle_text_grammar* grammar);
std::int32_t heddle_text_grammar_mask(heddle_text_grammar* grammar,
                                      std::uint32_t* words,
                                      std::size_t count,
                                      heddle_text_byte_buffer* error);
std::int32_t heddle_text_grammar_accept(heddle_text_grammar* grammar,
                                        const std::uint32_t* ids,
                                        std::size_t count,
                                        heddle_text_byte_buffer* error);
std::int32_t heddle_text_grammar_ended(heddle_text_grammar* grammar,
                                       bool* out,
                                       heddle_text_byte_buffer* error);
// NOLINTEND(readability-identifier-naming)

}  // extern "C"

namespace heddle::text::rust {

inline heddle_text_bytes lend(std::string_view text) {
  // The two character types may alias; the Rust side wants unsigned bytes.
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// Owns a byte buffer of the Rust side; empty until a call fills it.
class ByteBuffer {
 public:
  ByteBuffer() = default;
  ~ByteBuffer() { heddle_text_free_bytes(buffer_); }
  ByteBuffer(const ByteBuffer&) = delete;
  ByteBuffer& operator=(const ByteBuffer&) = delete;

  [[nodiscard]] heddle_text_byte_buffer* out() { return &buffer_; }
  [[nodiscard]] std::string_view view() const {
    return {reinterpret_cast<const char*>(buffer_.data), buffer_.len};
  }

 private:
  heddle_text_byte_buffer buffer_{};
};

/// Owns an id buffer of the Rust side; empty until a call fills it.
class IdBuffer {
 public:
  IdBuffer() = default;
  ~IdBuffer() { heddle_text_free_ids(buffer_); }
  IdBuffer(const IdBuffer&) = delete;
  IdBuffer& operator=(const IdBuffer&) = delete;

  [[nodiscard]] heddle_text_id_buffer* out() { return &buffer_; }
  [[nodiscard]] std::span<const std::uint32_t> view() const { return {buffer_.data, buffer_.len}; }

 private:
  heddle_text_id_buffer buffer_{};
};

/// The error of a call that failed with `code`. A panic is logged whole; whoever gets the error
/// hears its reason, and nothing of where in the library it was.
[[nodiscard]] Error failure(std::int32_t code, std::string_view message);

/// Runs `call(error)`; the error of a failed call.
template <class Call>
Result<void> checked(Call&& call) {
  ByteBuffer message;
  const std::int32_t code = std::forward<Call>(call)(message.out());
  return code == 0 ? Result<void>() : failure(code, message.view());
}

}  // namespace heddle::text::rust
