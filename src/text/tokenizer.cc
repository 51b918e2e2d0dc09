#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/rust_abi.h"

namespace heddle::text {
namespace {

struct FreeTokenizer {
  void operator()(heddle_text_tokenizer* handle) const { heddle_text_tokenizer_free(handle); }
};

/// `point` as UTF-8; it comes from a Rust char, so it is a valid code point.
std::string utf8(std::uint32_t point) {
  const auto tail = [&](unsigned shift) {
    return static_cast<char>(0x80U | ((point >> shift) & 0x3FU));
  };
  if (point < 0x80) {
    return {static_cast<char>(point)};
  }
  if (point < 0x800) {
    return {static_cast<char>(0xC0U | (point >> 6U)), tail(0)};
  }
  if (point < 0x10000) {
    return {static_cast<char>(0xE0U | (point >> 12U)), tail(6), tail(0)};
  }
  return {static_cast<char>(0xF0U | (point >> 18U)), tail(12), tail(6), tail(0)};
}

/// They are below the limit that pieces.rs puts on them, as open() sees to, so they fit.
std::vector<TokenId> ids_of(std::span<const std::uint32_t> view) {
  std::vector<TokenId> ids(view.size());
  std::ranges::transform(
      view, ids.begin(), [](std::uint32_t id) { return static_cast<TokenId>(id); });
  return ids;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::open(std::string_view tokenizer_json,
                                                         std::string_view config_json) {
  heddle_text_tokenizer* raw = nullptr;
  const Result<void> opened = rust::checked([&](auto* error) {
    return heddle_text_tokenizer_open(
        rust::lend(tokenizer_json), rust::lend(config_json), &raw, error);
  });
  if (!opened) {
    return opened.error();
  }
  std::unique_ptr<heddle_text_tokenizer, FreeTokenizer> handle(raw);
  heddle_text_rules rules{};
  rust::ByteBuffer records;
  const Result<void> listed = rust::checked(
      [&](auto* error) { return heddle_text_pieces(handle.get(), &rules, records.out(), error); });
  if (!listed) {
    return listed.error();
  }
  Result<PieceTable> pieces = PieceTable::read({.id_limit = static_cast<TokenId>(rules.id_limit),
                                                .strip_count = rules.strip_count,
                                                .strip = utf8(rules.strip)},
                                               records.view());
  if (!pieces) {
    return pieces.error();
  }
  // Not make_shared: the constructor is private.
  std::shared_ptr<const Tokenizer> tokenizer(new Tokenizer(handle.release(), std::move(*pieces)));
  // What goes around a text is around an empty one, too. The vocabulary itself has ids in bounds.
  const auto around = tokenizer->encode("", SpecialTokens::kAdd);
  if (!around) {
    return Error{Code::kCorrupt, "tokenizer.json: " + around.error().message};
  }
  for (const TokenId id : *around) {
    if (id < 0 || id >= tokenizer->vocab_size()) {
      return Error{Code::kCorrupt,
                   "tokenizer.json: its post_processor adds token " +
                       std::to_string(static_cast<std::uint32_t>(id)) + ", the last one is " +
                       std::to_string(tokenizer->vocab_size() - 1)};
    }
  }
  return tokenizer;
}

Tokenizer::Tokenizer(heddle_text_tokenizer* handle, PieceTable pieces)
    : handle_(handle), pieces_(std::move(pieces)) {
  for (TokenId id = 0; id < vocab_size(); ++id) {
    longest_token_ = std::max(longest_token_, pieces_.at(id).text.size());
  }
}

Tokenizer::~Tokenizer() {
  heddle_text_tokenizer_free(handle_);
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  rust::IdBuffer ids;
  const Result<void> encoded = rust::checked([&](auto* error) {
    return heddle_text_encode(
        handle_, rust::lend(text), special == SpecialTokens::kAdd, ids.out(), error);
  });
  if (!encoded) {
    return encoded.error();
  }
  return ids_of(ids.view());
}

Result<Tokenizer::Encoded> Tokenizer::encode_texts(std::string_view first,
                                                   std::optional<std::string_view> second,
                                                   std::int64_t most) const {
  rust::IdBuffer ids;
  std::size_t second_begin = 0;
  const heddle_text_bytes behind = rust::lend(second.value_or(std::string_view()));
  const Result<void> encoded = rust::checked([&](auto* error) {
    return heddle_text_encode_pair(handle_,
                                   rust::lend(first),
                                   second ? &behind : nullptr,
                                   static_cast<std::size_t>(std::max<std::int64_t>(most, 0)),
                                   ids.out(),
                                   &second_begin,
                                   error);
  });
  if (!encoded) {
    return encoded.error();
  }
  return Encoded{.tokens = ids_of(ids.view()),
                 .second_text = static_cast<std::int64_t>(second_begin)};
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, ShowSpecial special) const {
  std::vector<std::uint32_t> unsigned_ids;
  unsigned_ids.reserve(ids.size());
  for (const TokenId id : ids) {
    if (id < 0) {
      return Error{Code::kInvalidArgument,
                   "decode: token id " + std::to_string(id) + " is negative; ids are 0 to " +
                       std::to_string(vocab_size() - 1)};
    }
    unsigned_ids.push_back(static_cast<std::uint32_t>(id));
  }
  rust::ByteBuffer text;
  const Result<void> decoded = rust::checked([&](auto* error) {
    return heddle_text_decode(handle_,
                              unsigned_ids.data(),
                              unsigned_ids.size(),
                              special == ShowSpecial::kNo,
                              text.out(),
                              error);
  });
  if (!decoded) {
    return decoded.error();
  }
  return std::string(text.view());
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  std::int64_t id = -1;
  const Result<void> found = rust::checked(
      [&](auto* error) { return heddle_text_token_to_id(handle_, rust::lend(token), &id, error); });
  if (!found || id < 0) {
    return std::nullopt;  // Bytes that are not UTF-8 spell no token.
  }
  return static_cast<TokenId>(id);
}

}  // namespace heddle::text
