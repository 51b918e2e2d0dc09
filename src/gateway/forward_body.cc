#include "gateway/forward_body.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "api/form.h"
#include "api/object_text.h"
#include "gateway/upstream.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace {

bool is_form(const HttpRequest& request) {
  return api::is_form(field_value(request.headers, "content-type"));
}

std::string_view boundary_of(const HttpRequest& request) {
  return api::header_parameter(field_value(request.headers, "content-type"), "boundary");
}

/// The value of the field of this name, as a piece of the body; null data where it is not there.
std::string_view form_field(const std::vector<api::FormPart>& form, std::string_view name) {
  const auto found = std::find_if(
      form.begin(), form.end(), [name](const api::FormPart& part) { return part.name == name; });
  return found == form.end() ? std::string_view() : found->value;
}

/// A whole number of the outermost object.
std::optional<std::int64_t> number_at(const api::ObjectText& object, std::string_view key) {
  const auto text = object.find(key);
  if (!text) {
    return std::nullopt;
  }
  std::int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto [stop, failure] = std::from_chars(text->data(), end, number);
  return failure == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

}  // namespace

Result<BodyFacts> read_facts(const HttpRequest& request) {
  if (is_form(request)) {
    const std::string_view boundary = boundary_of(request);
    if (boundary.empty()) {
      return Error{.code = Code::kInvalidArgument, .message = "the form has no boundary"};
    }
    const std::vector<api::FormPart> form = api::form_parts(request.body, boundary);
    return BodyFacts{.model = std::string(form_field(form, "model")),
                     .stream = form_field(form, "stream") == "true"};
  }
  const Result<api::ObjectText> object = api::ObjectText::scan(request.body);
  if (!object) {
    return object.error();
  }
  BodyFacts facts{.model = object->string("model").value_or(""),
                  .stream = object->is_true("stream")};
  facts.priority = number_at(*object, "priority");
  for (const char* key : {"max_completion_tokens", "max_tokens", "max_output_tokens"}) {
    const std::int64_t most = number_at(*object, key).value_or(0);
    facts.max_tokens = facts.max_tokens > 0 ? facts.max_tokens : std::max<std::int64_t>(most, 0);
  }
  return facts;
}

std::string filtered_body(const HttpRequest& request,
                          const config::RequestFilters& filters,
                          const std::string& served,
                          const std::string& name) {
  if (is_form(request)) {
    const std::vector<api::FormPart> form = api::form_parts(request.body, boundary_of(request));
    const std::string_view model = form_field(form, "model");
    std::string body = request.body;
    if (!served.empty() && model.data() != nullptr) {
      body.replace(
          static_cast<std::size_t>(model.data() - request.body.data()), model.size(), served);
    }
    return body;
  }
  std::vector<std::pair<std::string, std::string>> set = filters.set_params;
  for (const auto& [id, params] : filters.set_params_by_id) {
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
  std::vector<std::string> strip = filters.strip_params;
  std::erase(strip, "model");
  if (set.empty() && strip.empty()) {
    return request.body;
  }
  const Result<api::ObjectText> object = api::ObjectText::scan(request.body);
  return object ? object->edited(strip, set) : request.body;
}

}  // namespace heddle::gateway
