#include "gateway/forward_body.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "api/object_text.h"
#include "gateway/upstream.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace {

constexpr std::string_view kFormType = "multipart/form-data";
constexpr std::string_view kLineEnd = "\r\n";

/// A parameter of a header's value, such as the boundary in `multipart/form-data; boundary="x"`.
std::string_view parameter(std::string_view value, std::string_view name) {
  for (std::size_t at = value.find(';'); at != std::string_view::npos; at = value.find(';', at)) {
    at = std::min(value.find_first_not_of("; \t", at), value.size());
    if (!value.substr(at).starts_with(name) || !value.substr(at + name.size()).starts_with('=')) {
      continue;
    }
    std::string_view found = value.substr(at + name.size() + 1);
    if (found.starts_with('"')) {
      found.remove_prefix(1);
      return found.substr(0, found.find('"'));
    }
    return found.substr(0, found.find_first_of("; \t"));
  }
  return {};
}

bool is_form(const HttpRequest& request) {
  return field_value(request.headers, "content-type").starts_with(kFormType);
}

/// The value of the field of this name in a form, as a part of `body`; null data where it is not
/// there.
std::string_view form_field(std::string_view body,
                            std::string_view boundary,
                            std::string_view name) {
  const std::string delimiter = "--" + std::string(boundary);
  for (std::size_t at = body.find(delimiter); at != std::string_view::npos;) {
    const std::size_t head = at + delimiter.size();
    const std::size_t head_end = body.find("\r\n\r\n", head);
    if (head_end == std::string_view::npos) {
      break;
    }
    at = body.find(std::string(kLineEnd) + delimiter, head_end + kLineEnd.size());
    if (at == std::string_view::npos) {
      break;
    }
    const std::size_t begin = std::min(head_end + 4, at);
    std::string_view lines = body.substr(head, head_end - head);
    const std::size_t disposition = lines.find("form-data");
    if (disposition != std::string_view::npos) {
      lines.remove_prefix(disposition);
      if (parameter(lines.substr(0, lines.find(kLineEnd)), "name") == name) {
        return body.substr(begin, at - begin);
      }
    }
    at += kLineEnd.size();
  }
  return {};
}

}  // namespace

Result<BodyFacts> read_facts(const HttpRequest& request) {
  if (is_form(request)) {
    const std::string_view boundary =
        parameter(field_value(request.headers, "content-type"), "boundary");
    if (boundary.empty()) {
      return Error{.code = Code::kInvalidArgument, .message = "the form has no boundary"};
    }
    return BodyFacts{.model = std::string(form_field(request.body, boundary, "model")),
                     .stream = form_field(request.body, boundary, "stream") == "true"};
  }
  const Result<api::ObjectText> object = api::ObjectText::scan(request.body);
  if (!object) {
    return object.error();
  }
  BodyFacts facts{.model = object->string("model").value_or(""),
                  .stream = object->is_true("stream")};
  if (const auto priority = object->find("priority")) {
    std::int64_t number = 0;
    const char* end = priority->data() + priority->size();
    const auto [stop, failure] = std::from_chars(priority->data(), end, number);
    if (failure == std::errc() && stop == end) {
      facts.priority = number;
    }
  }
  return facts;
}

std::string filtered_body(const HttpRequest& request,
                          const config::EngineConfig& engine,
                          const std::string& name) {
  const std::string& served = engine.served_name;
  if (is_form(request)) {
    const std::string_view boundary =
        parameter(field_value(request.headers, "content-type"), "boundary");
    const std::string_view model = form_field(request.body, boundary, "model");
    std::string body = request.body;
    if (!served.empty() && model.data() != nullptr) {
      body.replace(
          static_cast<std::size_t>(model.data() - request.body.data()), model.size(), served);
    }
    return body;
  }
  std::vector<std::pair<std::string, std::string>> set = engine.filters.set_params;
  for (const auto& [id, params] : engine.filters.set_params_by_id) {
    if (id == name) {
      for (const auto& param : params) {
        std::erase_if(set, [&param](const auto& other) { return other.first == param.first; });
        set.push_back(param);
      }
    }
  }
  if (!served.empty()) {
    spec::JsonWriter json;
    json.string(served);
    set.emplace_back("model", std::move(json).take());
  }
  std::vector<std::string> strip = engine.filters.strip_params;
  std::erase(strip, "model");
  if (set.empty() && strip.empty()) {
    return request.body;
  }
  const Result<api::ObjectText> object = api::ObjectText::scan(request.body);
  return object ? object->edited(strip, set) : request.body;
}

}  // namespace heddle::gateway
