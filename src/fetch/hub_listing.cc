#include "fetch/hub_listing.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fetch/url.h"

namespace heddle::fetch {
namespace {

bool is_hexadecimal(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<std::uint64_t> size_of(const nlohmann::json& object) {
  const auto found = object.find("size");
  return found != object.end() && found->is_number_unsigned()
             ? std::optional(found->get<std::uint64_t>())
             : std::nullopt;
}

Result<Object> read_entry(const nlohmann::json& entry, std::string_view where) {
  const std::optional<std::uint64_t> bytes = size_of(entry);
  Object object{.name = text_of(entry, "path"), .bytes = bytes.value_or(0)};
  if (!stays_below(object.name)) {
    return Error{Code::kCorrupt,
                 fmt::format("{} names \"{}\", which is not below the model's folder",
                             where,
                             object.name.substr(0, 200))};
  }
  if (!bytes) {
    return Error{Code::kCorrupt, fmt::format("{}: {} has no size", where, object.name)};
  }
  if (const std::string id = text_of(entry, "oid"); is_hexadecimal(id, 40)) {
    object.git_sha1 = id;
  }
  const auto lfs = entry.find("lfs");
  if (lfs == entry.end() || !lfs->is_object()) {
    return object;
  }
  // What git has then is a pointer; size and digest of the content stand here.
  object.git_sha1.clear();
  object.sha256 = text_of(*lfs, "oid");
  object.bytes = size_of(*lfs).value_or(object.bytes);
  if (!is_hexadecimal(object.sha256, 64)) {
    return Error{
        Code::kCorrupt,
        fmt::format(
            "{}: the SHA-256 of {} is \"{}\"", where, object.name, object.sha256.substr(0, 80))};
  }
  return object;
}

}  // namespace

Result<std::string> parse_hub_revision(std::string_view json, std::string_view where) {
  const nlohmann::json document = nlohmann::json::parse(json, nullptr, false);
  const std::string commit = document.is_object() ? text_of(document, "sha") : std::string();
  if (!is_hexadecimal(commit, 40)) {
    return Error{
        Code::kCorrupt,
        fmt::format("{} tells no commit; want a JSON object with sha; is it a hub?", where)};
  }
  return commit;
}

Result<std::vector<Object>> parse_hub_tree(std::string_view json, std::string_view where) {
  const nlohmann::json document = nlohmann::json::parse(json, nullptr, false);
  if (!document.is_array()) {
    return Error{Code::kCorrupt, fmt::format("{} is no list of files", where)};
  }
  std::vector<Object> objects;
  for (const nlohmann::json& entry : document) {
    if (!entry.is_object() || text_of(entry, "type") != "file") {
      continue;  // A folder, whose files are listed as well.
    }
    Result<Object> object = read_entry(entry, where);
    if (!object) {
      return object.error();
    }
    objects.push_back(std::move(object).value());
  }
  return objects;
}

std::string next_page(std::string_view link) {
  while (!link.empty()) {
    const std::size_t begin = link.find('<');
    const std::size_t end = link.find('>');
    if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) {
      return {};
    }
    const std::size_t following = link.find('<', end);
    const std::string_view parameters = link.substr(end, following - end);
    if (parameters.find("rel=\"next\"") != std::string_view::npos) {
      return std::string(link.substr(begin + 1, end - begin - 1));
    }
    link = following == std::string_view::npos ? std::string_view() : link.substr(following);
  }
  return {};
}

}  // namespace heddle::fetch
