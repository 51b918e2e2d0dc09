// Whole connections through the parser of requests, and of answers: what is taken as one message
// ends where a reference of a few lines says, which reads RFC 9112 as strictly as can be; what one
// refuses the other does, too; and neither depends on the portions in which bytes come. The first
// byte says requests or answers, the second the length of portions.

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gateway/http_parser.h"

namespace {

using heddle::gateway::HttpParser;
using heddle::gateway::HttpRequest;
using heddle::gateway::RequestParser;
using heddle::gateway::ResponseParser;

constexpr HttpParser::Bounds kBounds{.head = 4096, .body = 65536};

struct Message {
  std::string body{};
  std::size_t end = 0;  ///< Where the next begins.
  bool again = false;   ///< There may be one.
  friend bool operator==(const Message&, const Message&) = default;
};

/// What came of a connection.
struct Outcome {
  std::vector<Message> messages{};
  bool refused = false;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// --- The parsers, as connections use them ---

/// One message that begins at `begin`; how far the connection has come then.
Message parse(HttpParser& parser, std::string_view text, std::size_t begin, std::size_t portion) {
  std::size_t come = begin;
  std::size_t used = begin;
  while (come < text.size() && !parser.fault() && !parser.is_done()) {
    come = std::min(come + portion, text.size());
    std::string_view bytes = text.substr(used, come - used);
    if (!parser.is_head_done()) {
      parser.put_head(bytes);
    }
    if (parser.is_head_done() && !parser.is_done()) {
      parser.put(bytes);
    }
    used = come - bytes.size();
  }
  return {.body = parser.body(), .end = used, .again = parser.is_done() && parser.keep_alive()};
}

Outcome run(bool requests, std::string_view text, std::size_t portion) {
  Outcome outcome;
  for (std::size_t at = 0; at < text.size();) {
    HttpRequest request;
    RequestParser of_request(request, kBounds);
    ResponseParser of_answer(/*to_head=*/false, kBounds);
    HttpParser& parser = requests ? static_cast<HttpParser&>(of_request) : of_answer;
    Message message = parse(parser, text, at, portion);
    outcome.refused = parser.fault().has_value();
    const bool done = !outcome.refused && (parser.is_done() || parser.put_end());
    if (!done) {
      break;
    }
    if (!message.again) {
      message.end = text.size();  // Nobody reads what follows.
    }
    at = message.end;
    outcome.messages.push_back(std::move(message));
  }
  return outcome;
}

// --- The reference: whole texts, searched from their beginnings each time ---

struct Refused {};

std::string lower(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(), [](unsigned char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : static_cast<char>(c);
  });
  return small;
}

bool only(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kHex = "0123456789abcdefABCDEF";
constexpr std::string_view kToken =
    "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kHost =
    "-._~%!$&'()*+,;=0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

bool printable(std::string_view text, bool with_tab) {
  return std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return (c >= 32 && c != 127) || (with_tab && c == 9);
  });
}

/// A reader of one message; nothing where it is not whole.
class Reference {
 public:
  Reference(bool request, std::string_view text) : request_(request), text_(text) {}

  /// Whether the message is whole; `refused` where it is none.
  bool read(Message& message) {
    const bool whole = head() && body(message);
    message.end = at_;
    message.again = !close_ && !to_end_ && (is_11_ || keep_);
    return whole && !refused_;
  }
  [[nodiscard]] bool refused() const { return refused_; }

 private:
  bool refuse() {
    refused_ = true;
    return false;
  }

  /// The next line; nothing where it has not come or `most` is too small for it.
  std::optional<std::string_view> line(std::size_t most) {
    const std::size_t end = text_.find('\n', at_);
    const std::size_t size = (end == std::string_view::npos ? text_.size() : end + 1) - at_;
    if (size > most) {
      refuse();
      return std::nullopt;
    }
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    if (size < 2 || text_[end - 1] != '\r') {
      refuse();
      return std::nullopt;
    }
    const std::string_view found = text_.substr(at_, size - 2);
    at_ = end + 1;
    return found;
  }

  bool version(std::string_view text) {
    is_11_ = text == "HTTP/1.1";
    return is_11_ || text == "HTTP/1.0" || refuse();
  }

  static bool host(std::string_view text) {
    if (text.empty()) {
      return true;
    }
    std::size_t end = text.find(':');
    if (text.front() == '[') {
      end = text.find(']');
      if (end == std::string_view::npos || end == 1 ||
          !only(text.substr(1, end - 1), std::string(kHost) + ":")) {
        return false;
      }
      ++end;
    } else if (end == 0 || !only(text.substr(0, end), kHost)) {
      return false;
    }
    const std::string_view port = end == std::string_view::npos ? "" : text.substr(end);
    return port.empty() || (port.front() == ':' && only(port.substr(1), kDigits));
  }

  bool request_line(std::string_view text) {
    const std::size_t first = text.find(' ');
    const std::size_t second = text.find(' ', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) {
      return refuse();
    }
    const std::string_view method = text.substr(0, first);
    std::string_view target = text.substr(first + 1, second - first - 1);
    if (method.empty() || !only(method, kToken) || target.empty() || !printable(target, false)) {
      return refuse();
    }
    for (const std::string scheme : {"http://", "https://"}) {
      if (lower(target.substr(0, scheme.size())) == scheme) {
        target.remove_prefix(scheme.size());
        const std::string_view authority = target.substr(0, target.find_first_of("/?"));
        return authority.empty() || !host(authority) ? refuse() : version(text.substr(second + 1));
      }
    }
    if (target.front() != '/' && !(target == "*" && method == "OPTIONS")) {
      return refuse();
    }
    return version(text.substr(second + 1));
  }

  bool status_line(std::string_view text) {
    const std::string_view rest = text.substr(std::min<std::size_t>(text.size(), 8));
    if (rest.size() < 5 || rest[0] != ' ' || !only(rest.substr(1, 3), kDigits) || rest[1] == '0' ||
        rest[4] != ' ' || !printable(rest, true)) {
      return refuse();
    }
    status_ = (rest[1] - '0') * 100 + (rest[2] - '0') * 10 + (rest[3] - '0');
    return version(text.substr(0, 8));
  }

  bool field(std::string_view text, bool trailer) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos || colon == 0 || !only(text.substr(0, colon), kToken)) {
      return refuse();
    }
    const std::string name = lower(text.substr(0, colon));
    std::string_view value = text.substr(colon + 1);
    const std::size_t begin = value.find_first_not_of(" \t");
    value = begin == std::string_view::npos ? "" : value.substr(begin);
    value = value.substr(0, value.find_last_not_of(" \t") + 1);
    if (!printable(value, true)) {
      return refuse();
    }
    if (!trailer) {
      fields_.emplace_back(name, std::string(value));
    }
    return true;
  }

  bool head() {
    if (!text_.empty() && text_[0] != '\r' && !only(text_.substr(0, 1), kToken)) {
      return refuse();
    }
    std::size_t begin = 0;
    std::optional<std::string_view> first = line(kBounds.head);
    if (first && first->empty()) {
      if (at_ < text_.size() && text_[at_] != '\r' && !only(text_.substr(at_, 1), kToken)) {
        return refuse();
      }
      first = line(kBounds.head - (at_ - begin));
    }
    if (!first || !(request_ ? request_line(*first) : status_line(*first))) {
      return false;
    }
    for (;;) {
      const std::optional<std::string_view> next = line(kBounds.head - (at_ - begin));
      if (!next) {
        return false;
      }
      if (next->empty()) {
        return fields();
      }
      if (!field(*next, false)) {
        return false;
      }
    }
  }

  /// What RFC 9112, 6.3, makes of them.
  bool fields() {
    int hosts = 0;
    int encodings = 0;
    for (const auto& [name, value] : fields_) {
      if (name == "host") {
        ++hosts;
        if (!host(value)) {
          return refuse();
        }
      } else if (name == "transfer-encoding") {
        ++encodings;
        chunked_ = lower(value) == "chunked";
        if (!chunked_) {
          return refuse();
        }
      } else if (name == "content-length") {
        const std::string digits =
            value.substr(std::min(value.find_first_not_of('0'), value.size()));
        if (length_ || value.empty() || !only(value, kDigits) || digits.size() > 20 ||
            (digits.size() == 20 && digits > "18446744073709551615")) {
          return refuse();
        }
        length_ = 0;
        for (const char c : digits) {
          length_ = *length_ * 10 + static_cast<std::uint64_t>(c - '0');
        }
      } else if (name == "connection") {
        std::string list = lower(value) + ",";
        for (std::size_t end = list.find(','); end != std::string::npos; end = list.find(',')) {
          std::string option = list.substr(0, end);
          option.erase(0, option.find_first_not_of(" \t"));
          option.erase(option.find_last_not_of(" \t") + 1);
          close_ = close_ || option == "close";
          keep_ = keep_ || option == "keep-alive";
          list.erase(0, end + 1);
        }
      }
    }
    const bool odd = encodings > 1 || (chunked_ && (length_ || !is_11_));
    return odd || (request_ && (hosts > 1 || (hosts == 0 && is_11_))) ? refuse() : true;
  }

  bool body(Message& message) {
    if (!request_ && (status_ / 100 == 1 || status_ == 204 || status_ == 304)) {
      return true;
    }
    if (chunked_) {
      return chunks(message);
    }
    if (length_) {
      if (*length_ > kBounds.body) {
        return refuse();
      }
      message.body = text_.substr(at_, *length_);
      at_ += message.body.size();
      return message.body.size() == *length_;
    }
    if (!request_) {
      to_end_ = true;
      message.body = text_.substr(at_);
      at_ = text_.size();
    }
    return true;
  }

  bool chunks(Message& message) {
    std::size_t room = kBounds.head;
    for (;;) {
      const std::optional<std::string_view> first = line(room + 18);
      if (!first) {
        return false;
      }
      const std::size_t digits = std::min(first->find_first_not_of(kHex), first->size());
      const std::string_view extension = first->substr(digits);
      const std::size_t sign = extension.find_first_not_of(" \t");
      if (digits == 0 || digits > 16 || !printable(extension, true) || extension.size() > room ||
          (!extension.empty() && (sign == std::string_view::npos || extension[sign] != ';'))) {
        return refuse();
      }
      room -= extension.size();
      std::uint64_t size = 0;
      for (const char c : first->substr(0, digits)) {
        size = size * 16 + (kHex.find(c) < 16 ? kHex.find(c) : kHex.find(c) - 6);
      }
      if (size > kBounds.body - message.body.size()) {
        return refuse();
      }
      if (size == 0) {
        return trailers(room);
      }
      const std::string_view part = text_.substr(at_, size);
      message.body += part;
      at_ += part.size();
      if (part.size() < size) {
        return false;
      }
      const std::string_view end = text_.substr(at_, 2);
      if (end != std::string_view("\r\n").substr(0, end.size())) {
        return refuse();
      }
      if (end.size() < 2) {
        return false;
      }
      at_ += 2;
    }
  }

  bool trailers(std::size_t room) {
    for (;;) {
      const std::size_t begin = at_;
      const std::optional<std::string_view> next = line(room);
      if (!next) {
        return false;
      }
      room -= at_ - begin;
      if (next->empty()) {
        return true;
      }
      if (!field(*next, true)) {
        return false;
      }
    }
  }

  bool request_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::pair<std::string, std::string>> fields_{};
  std::optional<std::uint64_t> length_{};
  int status_ = 0;
  bool chunked_ = false;
  bool is_11_ = true;
  bool close_ = false;
  bool keep_ = false;
  bool to_end_ = false;
  bool refused_ = false;
};

Outcome refer(bool requests, std::string_view text) {
  Outcome outcome;
  for (std::size_t at = 0; at < text.size();) {
    Reference reference(requests, text.substr(at));
    Message message;
    if (!reference.read(message)) {
      outcome.refused = reference.refused();
      break;
    }
    message.end = message.again ? at + message.end : text.size();
    at = message.end;
    outcome.messages.push_back(std::move(message));
  }
  return outcome;
}

/// Each byte above 0x7f stands for a piece of a message, so that whole ones are drawn often.
std::string expand(std::string_view input) {
  static constexpr std::string_view kPieces[] = {"GET / HTTP/1.1\r\n",
                                                 "POST /a HTTP/1.1\r\n",
                                                 "HTTP/1.1 200 OK\r\n",
                                                 "Host: a\r\n",
                                                 "Content-Length: ",
                                                 "Transfer-Encoding: ",
                                                 "chunked",
                                                 "\r\n",
                                                 "\r\n\r\n",
                                                 "0\r\n\r\n",
                                                 "3\r\nabc\r\n",
                                                 "Connection: close\r\n",
                                                 "Connection: keep-alive\r\n",
                                                 "HTTP/1.0",
                                                 "GET http://b/ HTTP/1.1\r\n",
                                                 "identity",
                                                 ", ",
                                                 " chunked\r\n",
                                                 "5\r\n",
                                                 "X: y\r\n",
                                                 ";a=b",
                                                 "\n",
                                                 "\t",
                                                 " ",
                                                 "transfer-encoding:chunked\r\n",
                                                 "content-length:3\r\n",
                                                 "abc",
                                                 "HTTP/1.1 204 No\r\n",
                                                 "HTTP/1.1 100 Go\r\n",
                                                 "HTTP/1.0 200 OK\r\n",
                                                 "POST / HTTP/1.0\r\n",
                                                 "ffffffffffffffff"};
  std::string text;
  for (const char c : input) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80 && byte < 0x80 + std::size(kPieces)) {
      text += kPieces[byte - 0x80];
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  const bool requests = (data[0] & 1U) != 0;
  const std::string text = expand({reinterpret_cast<const char*>(data) + 2, size - 2});
  const Outcome right = refer(requests, text);
  HEDDLE_CHECK(run(requests, text, text.size() + 1) == right);
  HEDDLE_CHECK(run(requests, text, 1) == right);
  HEDDLE_CHECK(run(requests, text, 1 + data[1] % 64U) == right);
  return 0;
}
