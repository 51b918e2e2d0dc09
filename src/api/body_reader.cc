#include "api/body_reader.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "api/json_fault.h"
#include "base/nearest.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::size_t kDepthMax = 64;
// A document takes up to some 30 bytes for each of these; what templates make of one, ten times
// that.
constexpr std::size_t kPartsMax = std::size_t{1} << 19U;
constexpr std::size_t kCommasMax = std::size_t{1} << 22U;
constexpr std::size_t kFieldsMax = 4096;
constexpr std::size_t kNameMax = 1024;
constexpr std::size_t kWarningsMax = 16;
constexpr std::size_t kShownMax = 60;  // Bytes of a string that a message repeats.

bool is_neutral(dom::element value) {
  switch (value.type()) {
    case dom::element_type::NULL_VALUE:
      return true;
    case dom::element_type::BOOL:
      return !bool{value};
    case dom::element_type::INT64:
    case dom::element_type::UINT64:
    case dom::element_type::DOUBLE:
      return double{value} == 0;
    case dom::element_type::STRING:
      return std::string_view(value).empty();
    case dom::element_type::ARRAY:
      return dom::array(value).size() == 0;
    case dom::element_type::OBJECT:
      return dom::object(value).size() == 0;
  }
  return false;
}

/// What is wrong with a body that the parser has refused.
ApiError fault_of(std::string_view body, simdjson::error_code failure) {
  JsonFault fault;
  if (failure != simdjson::UTF8_ERROR) {
    fault = find_json_fault(body, kDepthMax);
  }
  std::string message;
  if (fault.message.empty()) {
    message = std::string("the body is not valid JSON: ") + simdjson::error_message(failure);
    message += fault.path.empty() ? "" : " (in " + fault.path + ")";
    fault.path.clear();
  } else {
    message = (fault.path.empty() ? "the body" : fault.path + ":") + " " + fault.message;
  }
  return invalid_request(std::move(fault.path), std::move(message));
}

/// Why a body is too much to take apart, if so.
std::optional<ApiError> too_much(std::string_view body) {
  if (body.size() <= kPartsMax) {
    return std::nullopt;
  }
  const JsonCount count = count_json(body);
  if (count.parts <= kPartsMax && count.commas <= kCommasMax) {
    return std::nullopt;
  }
  return invalid_request("",
                         "the body has " + std::to_string(count.parts) +
                             " objects, lists, keys and strings, and " +
                             std::to_string(count.commas) + " commas between them; want at most " +
                             std::to_string(kPartsMax) + " and " + std::to_string(kCommasMax));
}

}  // namespace

std::string describe(dom::element value) {
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "a list of " + std::to_string(dom::array(value).size());
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING: {
      const std::string_view text = value;
      const std::string_view shown = shorten(text, kShownMax);
      return "\"" + std::string(shown) + (shown.size() < text.size() ? "...\"" : "\"");
    }
    default:
      return simdjson::minify(value);
  }
}

BodyReader::BodyReader(std::string_view body) {
  if (std::optional<ApiError> refused = too_much(body)) {
    fail(std::move(*refused));
    return;
  }
  dom::element root;
  simdjson::error_code failure = simdjson::EMPTY;
  if (!body.empty()) {
    failure = parser_.allocate(body.size(), kDepthMax);
  }
  if (failure == simdjson::SUCCESS) {
    failure = parser_.parse(body.data(), body.size(), /*realloc_if_needed=*/true).get(root);
  }
  if (failure != simdjson::SUCCESS) {
    fail(fault_of(body, failure));
    return;
  }
  if (root.get_object().get(object_) != simdjson::SUCCESS) {
    fail(invalid_request("", "the body is " + describe(root) + "; want a JSON object"));
    return;
  }
  if (object_.size() > kFieldsMax) {
    fail(invalid_request("",
                         "the body has " + std::to_string(object_.size()) +
                             " fields; want at most " + std::to_string(kFieldsMax)));
    return;
  }
  std::set<std::string_view> seen;
  for (const dom::key_value_pair field : object_) {
    if (!seen.insert(field.key).second) {
      const std::string key(shorten(field.key, kShownMax));
      fail(invalid_request(key, key + ": occurs twice; want it once"));
      return;
    }
  }
}

void BodyReader::fail(ApiError error) {
  if (!error_) {
    error_ = std::move(error);
  }
}

void BodyReader::reject(std::string_view key, dom::element value, std::string_view want) {
  fail(invalid_request(
      std::string(key),
      std::string(key) + ": is " + describe(value) + "; want " + std::string(want)));
}

std::optional<dom::element> BodyReader::find(std::string_view key) {
  asked_.emplace_back(key);
  dom::element value;
  if (!ok() || object_.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::string> BodyReader::text(std::string_view key) {
  const std::optional<dom::element> value = find(key);
  if (!value) {
    return std::nullopt;
  }
  if (!value->is_string()) {
    reject(key, *value, "a string");
    return std::nullopt;
  }
  return std::string(std::string_view(*value));
}

std::string BodyReader::required_text(std::string_view key, std::string_view example) {
  const std::optional<dom::element> given = find(key);
  if (given && given->is_string() && std::string_view(*given).size() > kNameMax) {
    reject(key, *given, "at most " + std::to_string(kNameMax) + " bytes");
  }
  const std::optional<std::string> value = text(key);
  if (ok() && (!value || value->empty())) {
    fail(invalid_request(std::string(key),
                         std::string(key) + ": is missing; want " + std::string(example)));
  }
  return value.value_or("");
}

std::optional<bool> BodyReader::flag(std::string_view key) {
  const std::optional<dom::element> value = find(key);
  if (!value) {
    return std::nullopt;
  }
  if (!value->is_bool()) {
    reject(key, *value, "true or false");
    return std::nullopt;
  }
  return bool{*value};
}

std::optional<double> BodyReader::number(std::string_view key, Bounds bounds) {
  const std::optional<dom::element> value = find(key);
  if (!value) {
    return std::nullopt;
  }
  double number = 0;
  if (!value->is_number() || value->get_double().get(number) != simdjson::SUCCESS ||
      number < bounds.least || number > bounds.most) {
    std::string want = "a number";
    if (bounds.least > -std::numeric_limits<double>::max()) {
      want += " of at least " + fmt::format("{}", bounds.least);
    }
    if (bounds.most < std::numeric_limits<double>::max()) {
      want += " and at most " + fmt::format("{}", bounds.most);
    }
    reject(key, *value, want);
    return std::nullopt;
  }
  return number;
}

std::optional<std::int64_t> BodyReader::integer(std::string_view key,
                                                std::int64_t least,
                                                std::int64_t most) {
  const std::optional<dom::element> value = find(key);
  if (!value) {
    return std::nullopt;
  }
  double number = 0;
  std::int64_t whole = 0;
  bool valid = value->get_int64().get(whole) == simdjson::SUCCESS;
  if (!valid && value->get_double().get(number) == simdjson::SUCCESS) {
    // Some clients send whole numbers as 16.0.
    valid = std::trunc(number) == number && std::abs(number) < 1e15;
    whole = valid ? static_cast<std::int64_t>(number) : 0;
  }
  if (!valid || whole < least || whole > most) {
    reject(key,
           *value,
           "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return std::nullopt;
  }
  return whole;
}

std::vector<TokenId> BodyReader::tokens(std::string_view key, dom::element list) {
  std::vector<TokenId> ids;
  dom::array array;
  if (list.get_array().get(array) != simdjson::SUCCESS) {
    reject(key, list, "a list of token ids");
    return ids;
  }
  ids.reserve(array.size());
  for (const dom::element item : array) {
    std::int64_t id = -1;
    if (item.get_int64().get(id) != simdjson::SUCCESS || id < 0 ||
        id > std::numeric_limits<TokenId>::max()) {
      reject(key, item, "token ids, which are whole numbers of at least 0");
      return {};
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

void BodyReader::refuse_unless_neutral(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const std::optional<dom::element> value = find(key);
    if (value && !is_neutral(*value)) {
      fail(not_supported(std::string(key),
                         std::string(key) + ": is " + describe(*value) +
                             "; it is not supported yet, leave it out"));
    }
  }
}

void BodyReader::refuse_unless(std::string_view key, double neutral) {
  const std::optional<dom::element> value = find(key);
  double number = 0;
  if (value && !is_neutral(*value) &&
      (value->get_double().get(number) != simdjson::SUCCESS || number != neutral)) {
    fail(not_supported(
        std::string(key),
        std::string(key) + ": is " + describe(*value) + "; it is not supported yet, leave it out"));
  }
}

void BodyReader::warn_of_schema(const std::string& where, std::string_view schema) {
  if (schema.find(R"("uniqueItems":true)") != std::string_view::npos) {
    warn(where + ": uniqueItems is ignored, lists may have an entry twice");
  }
}

void BodyReader::warn(std::string warning) {
  if (warnings_.size() < kWarningsMax) {
    warnings_.push_back(std::move(warning));
  }
}

std::vector<std::string> BodyReader::take_warnings(
    std::initializer_list<std::string_view> harmless) {
  if (!ok()) {
    return {};
  }
  std::sort(asked_.begin(), asked_.end());
  asked_.erase(std::unique(asked_.begin(), asked_.end()), asked_.end());
  for (const dom::key_value_pair field : object_) {
    if (std::binary_search(asked_.begin(), asked_.end(), field.key) || field.value.is_null() ||
        std::find(harmless.begin(), harmless.end(), field.key) != harmless.end() ||
        warnings_.size() >= kWarningsMax) {
      continue;
    }
    const std::string_view shown = shorten(field.key, kShownMax);
    const std::string meant =
        nearest(shown, std::vector<std::string_view>(asked_.begin(), asked_.end()));
    warn(std::string(shown) + ": is not a field of this endpoint, and was ignored" +
         (meant.empty() ? "" : "; did you mean \"" + meant + "\"?"));
  }
  return std::move(warnings_);
}

}  // namespace heddle::api
