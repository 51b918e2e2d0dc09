#include "cluster/kubernetes_wire.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/base64.h"
#include "spec/json_view.h"
#include "spec/json_writer.h"

namespace heddle::cluster::kubernetes {

using spec::Json;
using spec::JsonWriter;

namespace {

constexpr std::string_view kFrom = "the API server's answer";
constexpr std::string_view kValueAnnotation = "heddle/value";
constexpr std::string_view kLifeAnnotation = "heddle/life-ms";
constexpr std::size_t kQuoted = 200;
constexpr std::uint64_t kLifeMaxMs = 1'000'000'000;

Error unlike(const std::string& what) {
  return {Code::kCorrupt, std::string(kFrom) + ": " + what};
}

std::optional<std::uint64_t> whole_number(std::string_view text, std::uint64_t most) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data(), end, number);
  const bool well = failure == std::errc() && at == end && number <= most;
  return well ? std::optional(number) : std::nullopt;
}

Result<Revision> version_in(const Json& json) {
  const std::string text = spec::text_at(json, {"metadata", "resourceVersion"});
  const auto number = whole_number(text, std::uint64_t{1} << 62U);
  if (!number || *number == 0) {
    return unlike("metadata.resourceVersion is \"" + text.substr(0, kQuoted) +
                  "\"; right is a number above 0");
  }
  return *number;
}

/// Name and revision, without which it is no object at all.
Result<Object> object_in(const Json& json) {
  const Result<Revision> revision = version_in(json);
  if (!revision) {
    return revision.error();
  }
  Object object{.name = spec::text_at(json, {"metadata", "name"}), .revision = *revision};
  if (object.name.empty()) {
    return unlike("metadata.name is empty");
  }
  return object;
}

/// Value and life; what is wrong with them, if anything is.
std::optional<Error> read_annotations(const Json& json, Object& object) {
  const Json* const annotations = spec::value_at(json, {"metadata", "annotations"});
  const auto* const value = annotations == nullptr
                                ? nullptr
                                : spec::value_at<std::string>(*annotations, {kValueAnnotation});
  std::optional<std::string> bytes = value == nullptr ? std::nullopt : from_base64(*value);
  if (!bytes || bytes->size() > kValueMax) {
    return unlike("lease \"" + object.name.substr(0, kQuoted) + "\" has no value of heddle's in " +
                  "its annotation " + std::string(kValueAnnotation));
  }
  object.value = std::move(*bytes);
  if (annotations->find(kLifeAnnotation) != nullptr) {
    const auto life = whole_number(spec::text_at(*annotations, {kLifeAnnotation}), kLifeMaxMs);
    if (!life) {
      return unlike("lease \"" + object.name.substr(0, kQuoted) + "\" has a wrong annotation " +
                    std::string(kLifeAnnotation));
    }
    object.life = std::chrono::milliseconds(*life);
  }
  return std::nullopt;
}

/// Words of zeros alone, which stand for something.
bool is_zeros(std::string_view word) {
  return !word.empty() && word.find_first_not_of('0') == std::string_view::npos;
}

}  // namespace

Result<Object> parse_object(std::string_view body) {
  const Result<Json> json = spec::parse_json(body, kFrom);
  if (!json) {
    return json.error();
  }
  Result<Object> object = object_in(*json);
  if (object) {
    if (const auto wrong = read_annotations(*json, *object)) {
      return *wrong;
    }
  }
  return object;
}

Result<Page> parse_page(std::string_view body) {
  const Result<Json> json = spec::parse_json(body, kFrom);
  if (!json) {
    return json.error();
  }
  const Result<Revision> revision = version_in(*json);
  if (!revision) {
    return revision.error();
  }
  Page page{.revision = *revision, .next = spec::text_at(*json, {"metadata", "continue"})};
  for (const Json& each : spec::items_at(*json, {"items"})) {
    Result<Object> object = object_in(each);
    if (!object) {
      return object.error();
    }
    if (!read_annotations(each, *object)) {
      page.objects.push_back(std::move(*object));
    }
  }
  return page;
}

Result<Event> parse_event(std::string_view line) {
  const Result<Json> json = spec::parse_json(line, kFrom);
  if (!json) {
    return json.error();
  }
  const std::string type = spec::text_at(*json, {"type"});
  const Json* const found = json->find("object");
  if (found == nullptr) {
    return unlike("a line of a watch without an object");
  }
  if (type == "ERROR") {
    return Event{
        .kind = Event::Kind::kError,
        .code = static_cast<int>(std::clamp(spec::number_at(*found, {"code"}), 0.0, 999.0)),
        .message = spec::text_at(*found, {"message"}).substr(0, kQuoted)};
  }
  if (type == "BOOKMARK") {
    const Result<Revision> revision = version_in(*found);
    return revision ? Result<Event>(Event{.object = {.revision = *revision}}) : revision.error();
  }
  const bool removed = type == "DELETED";
  if (!removed && type != "ADDED" && type != "MODIFIED") {
    return unlike("an event of type \"" + type.substr(0, kQuoted) + "\"");
  }
  Result<Object> object = object_in(*found);
  if (!object) {
    return object.error();
  }
  Event event{.kind = removed ? Event::Kind::kRemoved : Event::Kind::kPut,
              .object = std::move(*object)};
  event.is_record = !read_annotations(*found, event.object);
  return event;
}

std::string message_of(std::string_view body) {
  const Result<Json> json = spec::parse_json(body, kFrom);
  const std::string message = json ? spec::text_at(*json, {"message"}) : std::string();
  return message.empty() ? std::string(body.substr(0, kQuoted)) : message.substr(0, kQuoted);
}

std::string write_object(const Object& object, std::string_view group, Revision expected) {
  JsonWriter json;
  json.begin_object()
      .key("apiVersion")
      .string("coordination.k8s.io/v1")
      .key("kind")
      .string("Lease");
  json.key("metadata").begin_object().key("name").string(object.name);
  if (expected != 0) {
    json.key("resourceVersion").string(std::to_string(expected));
  }
  json.key("labels").begin_object().key(kLabel).string(group).end_object();
  json.key("annotations").begin_object().key(kValueAnnotation).string(to_base64(object.value));
  if (object.life > Duration::zero()) {
    const auto life = std::chrono::ceil<std::chrono::milliseconds>(object.life).count();
    json.key(kLifeAnnotation)
        .string(std::to_string(std::min(static_cast<std::uint64_t>(life), kLifeMaxMs)));
  }
  json.end_object().end_object().key("spec").begin_object().end_object().end_object();
  return std::move(json).take();
}

std::string delete_body(Revision expected) {
  JsonWriter json;
  json.begin_object().key("apiVersion").string("v1").key("kind").string("DeleteOptions");
  json.key("preconditions").begin_object();
  json.key("resourceVersion").string(std::to_string(expected)).end_object().end_object();
  return std::move(json).take();
}

std::string name_of(std::string_view group, std::string_view key) {
  std::string name(group);
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find_first_of("/.", begin), key.size());
    const std::string_view word = key.substr(begin, end - begin);
    const bool after_slash = begin > 0 && key[begin - 1] == '/';
    name += after_slash ? ".0." : ".";
    name += word;
    name += is_zeros(word) ? "0" : "";
    begin = end + 1;
  }
  return name;
}

std::optional<std::string> key_of(std::string_view group, std::string_view name) {
  if (!name.starts_with(group) || !name.substr(group.size()).starts_with('.')) {
    return std::nullopt;
  }
  const std::string_view rest = name.substr(group.size() + 1);
  std::string key;
  std::string joint;
  for (std::size_t begin = 0; begin <= rest.size();) {
    const std::size_t end = std::min(rest.find('.', begin), rest.size());
    std::string_view word = rest.substr(begin, end - begin);
    if (word == "0") {
      joint = "/";
    } else {
      word.remove_suffix(is_zeros(word) ? 1 : 0);
      key += joint;
      key += word;
      joint = ".";
    }
    begin = end + 1;
  }
  // What is written otherwise, as "a.0.0.b" or "a..b", is not of us.
  const bool well = check_key(key).has_value() && name_of(group, key) == name;
  return well ? std::optional(std::move(key)) : std::nullopt;
}

}  // namespace heddle::cluster::kubernetes
