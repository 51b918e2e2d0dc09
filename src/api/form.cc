#include "api/form.h"

#include <algorithm>

namespace heddle::api {

namespace {

constexpr std::string_view kFormType = "multipart/form-data";
constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";

/// What the head of a part says of it, with `value` as it is.
FormPart described(std::string_view head, std::string_view value) {
  const std::size_t disposition = head.find("form-data");
  if (disposition == std::string_view::npos) {
    return {.value = value};
  }
  head.remove_prefix(disposition);
  const std::string_view line = head.substr(0, head.find(kLineEnd));
  return {.name = header_parameter(line, "name"),
          .file_name = header_parameter(line, "filename"),
          .value = value};
}

}  // namespace

std::string_view header_parameter(std::string_view value, std::string_view name) {
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

bool is_form(std::string_view content_type) {
  return content_type.starts_with(kFormType);
}

std::vector<FormPart> form_parts(std::string_view body, std::string_view boundary) {
  std::vector<FormPart> parts;
  const std::string delimiter = "--" + std::string(boundary);
  const std::string end = std::string(kLineEnd) + delimiter;
  for (std::size_t at = body.find(delimiter);
       at != std::string_view::npos && parts.size() < kFormPartsMax;) {
    const std::size_t head = at + delimiter.size();
    const std::size_t head_end = body.find(kHeadEnd, head);
    if (head_end == std::string_view::npos) {
      break;
    }
    at = body.find(end, head_end + kLineEnd.size());
    if (at == std::string_view::npos) {
      break;
    }
    const std::size_t begin = std::min(head_end + kHeadEnd.size(), at);
    parts.push_back(described(body.substr(head, head_end - head), body.substr(begin, at - begin)));
    at += kLineEnd.size();
  }
  return parts;
}

}  // namespace heddle::api
