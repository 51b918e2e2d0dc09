#include "api/logprobs_json.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <simdjson.h>

namespace heddle::api {

using spec::JsonWriter;

namespace {

bool is_utf8(std::string_view bytes) {
  return simdjson::validate_utf8(bytes.data(), bytes.size());
}

/// A token as text. Bytes that are no whole characters are spelled as OpenAI's older API does, so
/// that tokens that differ also look different.
std::string token_text(const std::string& bytes) {
  if (is_utf8(bytes)) {
    return bytes;
  }
  std::string text = "bytes:";
  for (const char byte : bytes) {
    text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

/// JSON knows no infinity; OpenAI's stand-in for a probability of zero.
double finite_logprob(float logprob) {
  return std::max(static_cast<double>(logprob), -9999.0);
}

/// The fields of a token in the newer form, in an object that is open.
void write_chance(JsonWriter& json, const TokenChance& chance) {
  json.key("token").string(token_text(chance.bytes));
  json.key("logprob").number(finite_logprob(chance.logprob));
  json.key("bytes").begin_array();
  for (const char byte : chance.bytes) {
    json.integer(static_cast<unsigned char>(byte));
  }
  json.end_array();
}

}  // namespace

void write_logprobs(JsonWriter& json, const std::vector<TokenLogprobs>& tokens) {
  json.begin_array();
  for (const TokenLogprobs& one : tokens) {
    json.begin_object();
    write_chance(json, one.token);
    json.key("top_logprobs").begin_array();
    for (const TokenChance& chance : one.top) {
      json.begin_object();
      write_chance(json, chance);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

void write_completion_logprobs(JsonWriter& json,
                               const std::vector<TokenLogprobs>& tokens,
                               std::int64_t offset) {
  json.begin_object().key("tokens").begin_array();
  for (const TokenLogprobs& one : tokens) {
    json.string(token_text(one.token.bytes));
  }
  json.end_array().key("token_logprobs").begin_array();
  for (const TokenLogprobs& one : tokens) {
    if (one.first) {
      json.null();
    } else {
      json.number(finite_logprob(one.token.logprob));
    }
  }
  json.end_array().key("top_logprobs").begin_array();
  for (const TokenLogprobs& one : tokens) {
    if (one.first) {
      json.null();
      continue;
    }
    json.begin_object();
    std::set<std::string> written;  // Two tokens may have the same text; the likelier stays.
    for (const TokenChance& chance : one.top) {
      std::string text = token_text(chance.bytes);
      if (written.insert(text).second) {
        json.key(text).number(finite_logprob(chance.logprob));
      }
    }
    json.end_object();
  }
  json.end_array().key("text_offset").begin_array();
  for (const TokenLogprobs& one : tokens) {
    json.integer(offset);
    offset += one.hidden ? 0 : count_characters(one.token.bytes);
  }
  json.end_array().end_object();
}

void write_prompt_logprobs(JsonWriter& json, const PromptLogprobs& prompt) {
  json.begin_array();
  for (const std::vector<PromptChance>& place : prompt) {
    if (place.empty()) {
      json.null();
      continue;
    }
    json.begin_object();
    for (const PromptChance& one : place) {
      json.key(std::to_string(one.token)).begin_object();
      json.key("logprob").number(finite_logprob(one.chance.logprob)).key("rank");
      if (one.rank > 0) {
        json.integer(one.rank);
      } else {
        json.null();
      }
      json.key("decoded_token").string(token_text(one.chance.bytes)).end_object();
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace heddle::api
