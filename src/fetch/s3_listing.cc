#include "fetch/s3_listing.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "fetch/url.h"

namespace heddle::fetch {
namespace {

/// What stands between the first <tag> of `xml` and its </tag>; these elements do not nest in
/// themselves. `xml` becomes what comes after.
std::optional<std::string_view> take_element(std::string_view& xml, std::string_view tag) {
  const std::string open = fmt::format("<{}>", tag);
  const std::string close = fmt::format("</{}>", tag);
  const std::size_t begin = xml.find(open);
  if (begin == std::string_view::npos) {
    return std::nullopt;
  }
  const std::size_t end = xml.find(close, begin + open.size());
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view content = xml.substr(begin + open.size(), end - begin - open.size());
  xml.remove_prefix(end + close.size());
  return content;
}

void append_utf8(std::string& text, std::uint32_t point) {
  if (point < 0x80) {
    text += static_cast<char>(point);
  } else if (point < 0x800) {
    text += static_cast<char>(0xC0U | point >> 6U);
    text += static_cast<char>(0x80U | (point & 0x3FU));
  } else if (point < 0x10000) {
    text += static_cast<char>(0xE0U | point >> 12U);
    text += static_cast<char>(0x80U | (point >> 6U & 0x3FU));
    text += static_cast<char>(0x80U | (point & 0x3FU));
  } else {
    text += static_cast<char>(0xF0U | point >> 18U);
    text += static_cast<char>(0x80U | (point >> 12U & 0x3FU));
    text += static_cast<char>(0x80U | (point >> 6U & 0x3FU));
    text += static_cast<char>(0x80U | (point & 0x3FU));
  }
}

/// What `&name;` stands for, appended; false where it stands for nothing.
bool append_entity(std::string& text, std::string_view name) {
  constexpr std::array<std::pair<std::string_view, char>, 5> kNamed{
      {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};
  for (const auto& [known, meant] : kNamed) {
    if (name == known) {
      text += meant;
      return true;
    }
  }
  if (!name.starts_with('#') || name.size() < 2) {
    return false;
  }
  const bool hexadecimal = name[1] == 'x';
  const std::string_view digits = name.substr(hexadecimal ? 2 : 1);
  std::uint32_t point = 0;
  const auto [end, failure] =
      std::from_chars(digits.data(), digits.data() + digits.size(), point, hexadecimal ? 16 : 10);
  if (failure != std::errc() || end != digits.data() + digits.size() || point > 0x10FFFF) {
    return false;
  }
  append_utf8(text, point);
  return true;
}

std::optional<std::string> plain_text(std::string_view xml) {
  std::string text;
  while (!xml.empty()) {
    const std::size_t mark = xml.find_first_of("&<");
    text += xml.substr(0, mark);
    if (mark == std::string_view::npos) {
      break;
    }
    const std::size_t end = xml.find(';', mark);
    if (xml[mark] == '<' || end == std::string_view::npos ||
        !append_entity(text, xml.substr(mark + 1, end - mark - 1))) {
      return std::nullopt;
    }
    xml.remove_prefix(end + 1);
  }
  return text;
}

std::optional<std::string> text_in(std::string_view element, std::string_view tag) {
  const std::optional<std::string_view> content = take_element(element, tag);
  return content ? plain_text(*content) : std::nullopt;
}

std::optional<std::uint64_t> size_in(std::string_view element) {
  const std::string text = text_in(element, "Size").value_or("");
  std::uint64_t bytes = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return failure == std::errc() && end == text.data() + text.size() ? std::optional(bytes)
                                                                    : std::nullopt;
}

}  // namespace

Result<S3Page> parse_s3_page(std::string_view xml,
                             std::string_view prefix,
                             std::string_view where) {
  const auto wrong = [&](std::string_view why) {
    return Error{Code::kCorrupt, fmt::format("the list of {}: {}", where, why)};
  };
  if (xml.find("<ListBucketResult") == std::string_view::npos) {
    return wrong("this is no answer of S3's");
  }
  S3Page page;
  std::string_view rest = xml;
  while (const std::optional<std::string_view> element = take_element(rest, "Contents")) {
    const std::optional<std::string> key = text_in(*element, "Key");
    const std::optional<std::uint64_t> bytes = size_in(*element);
    if (!key || !bytes) {
      return wrong("an object has no key or no size");
    }
    if (!key->starts_with(prefix)) {
      return wrong(fmt::format("the key \"{}\" is not below {}", key->substr(0, 200), prefix));
    }
    if (key->ends_with('/') || key->size() == prefix.size()) {
      continue;
    }
    const std::string name = key->substr(prefix.size());
    if (!stays_below(name)) {
      return wrong(fmt::format("it names \"{}\", which is not below the model's folder",
                               name.substr(0, 200)));
    }
    page.objects.push_back(
        {.name = name, .bytes = *bytes, .validator = text_in(*element, "ETag").value_or("")});
  }
  if (text_in(xml, "IsTruncated").value_or("") == "true") {
    page.next = text_in(xml, "NextContinuationToken").value_or("");
    if (page.next.empty()) {
      return wrong("it goes on, and does not say where");
    }
  }
  return page;
}

std::string s3_error_code(std::string_view xml) {
  const std::optional<std::string_view> error = take_element(xml, "Error");
  return error ? text_in(*error, "Code").value_or("") : std::string();
}

}  // namespace heddle::fetch
