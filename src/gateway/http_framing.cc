#include "gateway/http_framing.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace heddle::gateway {

namespace {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

constexpr bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Of each character whether it is of a class.
template <class Class>
constexpr std::array<bool, 256> table(Class holds) {
  std::array<bool, 256> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = holds(static_cast<char>(i));
  }
  return all;
}

constexpr auto kTokens = table([](char c) {
  return is_digit(c) || is_letter(c) ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
});
constexpr auto kFieldText = table([](char c) {
  const auto byte = static_cast<unsigned char>(c);
  return c == '\t' || (byte >= 0x20 && byte != 0x7f);
});
constexpr auto kNames = table([](char c) {
  return is_digit(c) || is_letter(c) ||
         std::string_view("-._~%!$&'()*+,;=").find(c) != std::string_view::npos;
});

template <class Text>
bool all_of(Text text, const std::array<bool, 256>& allowed) {
  return std::all_of(
      text.begin(), text.end(), [&](char c) { return allowed[static_cast<unsigned char>(c)]; });
}

/// Calls `take` with each element of a list that is not empty.
template <class Take>
void for_each_of(std::string_view list, Take take) {
  for (bool more = true; more;) {
    const std::size_t comma = list.find(',');
    const std::string_view element = trimmed(list.substr(0, comma));
    if (!element.empty()) {
      take(element);
    }
    more = comma != std::string_view::npos;
    list.remove_prefix(more ? comma + 1 : list.size());
  }
}

}  // namespace

bool is_field(std::string_view name, std::string_view lower) {
  return name.size() == lower.size() &&
         std::equal(name.begin(), name.end(), lower.begin(), [](char a, char b) {
           return a == b || (a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b);
         });
}

bool is_token(std::string_view text) {
  return !text.empty() && all_of(text, kTokens);
}

bool is_field_text(std::string_view text) {
  return all_of(text, kFieldText);
}

bool is_host(std::string_view text) {
  std::string_view port;
  if (text.substr(0, 1) == "[") {
    const std::size_t end = text.find(']');
    const std::string_view inside = text.substr(1, end == std::string_view::npos ? end : end - 1);
    if (end == std::string_view::npos || inside.empty() ||
        !std::all_of(inside.begin(), inside.end(), [](char c) {
          return c == ':' || kNames[static_cast<unsigned char>(c)];
        })) {
      return false;
    }
    port = text.substr(end + 1);
  } else {
    const std::size_t end = std::min(text.find(':'), text.size());
    if (!all_of(text.substr(0, end), kNames) || (end == 0 && !text.empty())) {
      return false;
    }
    port = text.substr(end);
  }
  return port.empty() ||
         (port.front() == ':' && std::all_of(port.begin() + 1, port.end(), is_digit));
}

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_blank(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

void HttpFraming::refuse(int status, std::string_view why) {
  if (!fault_) {
    fault_ = HttpFault{.status = status, .why = why};
  }
}

void HttpFraming::add(std::string_view name, std::string_view value) {
  switch (name.size()) {  // Most fields are none of these by that alone.
    case std::string_view("host").size():
      if (is_field(name, "host")) {
        ++hosts_;
        if (!is_host(value)) {
          refuse(400, "Host is not a host, with or without a port");
        }
      }
      break;
    case std::string_view("connection").size():
      if (is_field(name, "connection")) {
        add_options(value);
      }
      break;
    case std::string_view("content-length").size():
      if (is_field(name, "content-length")) {
        add_length(value);
      }
      break;
    case std::string_view("transfer-encoding").size():
      if (is_field(name, "transfer-encoding")) {
        ++encodings_;
        if (!is_field(value, "chunked")) {
          refuse(501, "Transfer-Encoding is not chunked, and nothing else");
        }
      }
      break;
    default:
      break;
  }
}

void HttpFraming::add_length(std::string_view text) {
  std::uint64_t length = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (length_) {
    refuse(400, "Content-Length stands there more than once");
  } else if (text.empty() || failure != std::errc() || end != text.data() + text.size()) {
    refuse(400, "Content-Length is not a number");
  }
  length_ = length;
}

void HttpFraming::add_options(std::string_view list) {
  for_each_of(list, [&](std::string_view option) {
    close_ = close_ || is_field(option, "close");
    keep_alive_ = keep_alive_ || is_field(option, "keep-alive");
  });
}

std::optional<HttpFault> HttpFraming::fault_of_answer(bool is_11) const {
  if (fault_) {
    return fault_;
  }
  if (encodings_ > 0) {
    if (!is_11) {
      return HttpFault{.why = "Transfer-Encoding is not of HTTP/1.0"};
    }
    if (length_) {
      return HttpFault{.why = "Transfer-Encoding and Content-Length exclude each other"};
    }
    if (encodings_ > 1) {
      return HttpFault{.why = "Transfer-Encoding stands there more than once"};
    }
  }
  return std::nullopt;
}

std::optional<HttpFault> HttpFraming::fault_of_request(bool is_11) const {
  if (!fault_ && (hosts_ > 1 || (is_11 && hosts_ == 0))) {
    return HttpFault{.why = "a request of HTTP/1.1 has to have Host, once"};
  }
  return fault_of_answer(is_11);
}

}  // namespace heddle::gateway
