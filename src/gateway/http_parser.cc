#include "gateway/http_parser.h"

#include <algorithm>
#include <charconv>

namespace heddle::gateway {

namespace {

constexpr std::size_t kUsualFields = 12;
constexpr std::uint64_t kReservedMost = 64U << 10U;
constexpr std::size_t kSizeDigits = 16;  ///< Of a chunk, at most: 64 bits.
constexpr HttpFault kNotHttp{.why = "the first line is not a request of HTTP/1.1"};

/// Takes the text before the first `mark` off `text`, and the mark.
std::optional<std::string_view> take_until(std::string_view& text, char mark) {
  const std::size_t end = text.find(mark);
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end + 1);
  return taken;
}

}  // namespace

/// The next line, without what ends it. False when it has not come, or is none.
bool HttpParser::take_line(std::string_view& bytes, std::string_view& line, std::size_t most) {
  const std::size_t end = bytes.find('\n', scanned_);
  const bool whole = end != std::string_view::npos;
  if ((whole ? end + 1 : bytes.size()) > most) {
    refuse({.status = 431, .why = "the head, or what follows on chunks, is too large"});
    return false;
  }
  if (!whole) {
    scanned_ = bytes.size();
    return false;
  }
  scanned_ = 0;
  if (end == 0 || bytes[end - 1] != '\r') {
    refuse({.why = "a line ends without a carriage return"});
    return false;
  }
  line = bytes.substr(0, end - 1);
  bytes.remove_prefix(end + 1);
  return true;
}

void HttpParser::put_head(std::string_view& bytes) {
  std::string_view line;
  while (!fault_ && !is_head_done()) {
    // What cannot begin a message, such as a greeting of TLS, need not end a line to be refused.
    if (stage_ == Stage::kStart && !bytes.empty() && bytes.front() != '\r' &&
        !is_token(bytes.substr(0, 1))) {
      refuse(kNotHttp);
      return;
    }
    if (!take_line(bytes, line, room_)) {
      return;
    }
    room_ -= line.size() + 2;
    if (stage_ == Stage::kStart && line.empty() && !blank_taken_) {
      blank_taken_ = true;  // Old clients end a body with one too many (RFC 9112, 2.2).
    } else if (stage_ == Stage::kStart) {
      take_start(line);
      stage_ = Stage::kFields;
    } else if (!line.empty()) {
      take_field_line(line);
    } else {
      begin_body();
    }
  }
}

void HttpParser::take_field_line(std::string_view line) {
  const std::optional<std::string_view> name = take_until(line, ':');
  const std::string_view value = trimmed(line);
  if (!name || !is_token(*name)) {
    refuse({.why = "a line of the head is not a field"});
  } else if (!is_field_text(value)) {
    refuse({.why = "the value of a field has control characters"});
  } else if (stage_ == Stage::kFields) {
    framing_.add(*name, value);
    take_field(*name, value);
  }
}

void HttpParser::begin_body() {
  if (const std::optional<HttpFault> wrong = finish_head(framing_)) {
    refuse(*wrong);
    return;
  }
  room_ = bounds_.head;
  left_ = framing_.length().value_or(0);
  if (is_bodiless()) {
    stage_ = Stage::kDone;
  } else if (framing_.chunked()) {
    stage_ = Stage::kChunkSize;
  } else if (framing_.length()) {
    stage_ = left_ > 0 ? Stage::kLength : Stage::kDone;
  } else {
    until_end_ = may_end_with_connection();
    stage_ = until_end_ ? Stage::kToEnd : Stage::kDone;
  }
  if (stage_ == Stage::kLength && left_ > body_room_) {
    refuse({.status = 413, .why = "the body is too large"});
  } else if (stage_ == Stage::kLength) {
    body_.reserve(static_cast<std::size_t>(std::min(left_, kReservedMost)));
  }
}

void HttpParser::put(std::string_view& bytes) {
  put_head(bytes);
  while (!fault_ && is_head_done() && !is_done() && put_some(bytes)) {
  }
}

bool HttpParser::put_some(std::string_view& bytes) {
  std::string_view line;
  switch (stage_) {
    case Stage::kLength:
      put_data(bytes, Stage::kDone);
      return !bytes.empty();
    case Stage::kChunk:
      put_data(bytes, Stage::kChunkEnd);
      return !bytes.empty();
    case Stage::kChunkEnd:
      return put_chunk_end(bytes);
    case Stage::kChunkSize:
      if (!take_line(bytes, line, room_ + kSizeDigits + 2)) {
        return false;
      }
      take_chunk_size(line);
      return true;
    case Stage::kTrailers:
      if (!take_line(bytes, line, room_)) {
        return false;
      }
      room_ -= line.size() + 2;
      if (line.empty()) {
        stage_ = Stage::kDone;
      } else {
        take_field_line(line);
      }
      return true;
    default:
      body_.append(bytes);
      bytes = {};
      return false;
  }
}

bool HttpParser::put_chunk_end(std::string_view& bytes) {
  constexpr std::string_view kEnd = "\r\n";
  const std::string_view come = bytes.substr(0, kEnd.size());
  if (come != kEnd.substr(0, come.size())) {
    refuse({.why = "a chunk is longer than its size"});
  }
  if (fault_ || come.size() < kEnd.size()) {
    return false;
  }
  bytes.remove_prefix(kEnd.size());
  stage_ = Stage::kChunkSize;
  return true;
}

void HttpParser::put_data(std::string_view& bytes, Stage next) {
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
  body_.append(bytes.substr(0, count));
  bytes.remove_prefix(count);
  left_ -= count;
  stage_ = left_ == 0 ? next : stage_;
}

/// "1f4", and extensions, which begin with a semicolon.
void HttpParser::take_chunk_size(std::string_view line) {
  const auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), left_, 16);
  const auto digits = static_cast<std::size_t>(end - line.data());
  const std::string_view extensions = line.substr(digits);
  const std::string_view first = trimmed(extensions).substr(0, 1);
  if (failure != std::errc() || digits > kSizeDigits || !is_field_text(extensions) ||
      (!extensions.empty() && first != ";")) {
    refuse({.why = "a chunk does not begin with its size"});
  } else if (extensions.size() > room_) {
    refuse({.status = 431, .why = "extensions of chunks are too large"});
  } else if (left_ > body_room_) {
    refuse({.status = 413, .why = "the body is too large"});
  } else {
    room_ -= extensions.size();
    body_room_ -= left_;
    stage_ = left_ > 0 ? Stage::kChunk : Stage::kTrailers;
  }
}

bool HttpParser::put_end() {
  if (!fault_ && stage_ == Stage::kToEnd) {
    stage_ = Stage::kDone;
  }
  return !fault_ && is_done();
}

void HttpParser::take_version(std::string_view text) {
  is_11_ = text == "HTTP/1.1";
  if (is_11_ || text == "HTTP/1.0") {
    return;
  }
  const bool is_other = text.size() == 8 && text.substr(0, 5) == "HTTP/" && text[6] == '.' &&
                        text[5] >= '0' && text[5] <= '9' && text[7] >= '0' && text[7] <= '9';
  refuse(is_other ? HttpFault{.status = 505, .why = "the version is neither HTTP/1.1 nor HTTP/1.0"}
                  : kNotHttp);
}

// --- Requests ---

void RequestParser::take_start(std::string_view line) {
  const std::optional<std::string_view> method = take_until(line, ' ');
  const std::optional<std::string_view> target = take_until(line, ' ');
  if (!method || !is_token(*method) || !target || target->empty() || !is_field_text(*target) ||
      target->find('\t') != std::string_view::npos) {
    refuse(kNotHttp);
    return;
  }
  take_version(line);
  request_.head_only = *method == "HEAD";
  request_.method = request_.head_only ? "GET" : *method;
  request_.headers.reserve(kUsualFields);
  take_target(*target);
}

/// "/path?query", or the same after "http://authority"; "*" is for OPTIONS alone.
void RequestParser::take_target(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (is_field(target.substr(0, scheme.size()), scheme)) {
      target.remove_prefix(scheme.size());
      const std::size_t end = std::min(target.find_first_of("/?"), target.size());
      authority_ = target.substr(0, end);
      target.remove_prefix(end);
      if (authority_.empty() || !is_host(authority_)) {
        refuse({.why = "the target's authority is not a host, with or without a port"});
      }
      break;
    }
  }
  const std::size_t mark = std::min(target.find('?'), target.size());
  request_.path = target.substr(0, mark);
  request_.query = target.substr(std::min(mark + 1, target.size()));
  if (request_.path.empty() && !authority_.empty()) {
    request_.path = "/";
  } else if (request_.path.substr(0, 1) != "/" &&
             !(target == "*" && request_.method == "OPTIONS")) {
    refuse({.why = "the target of a request has to begin with \"/\" or \"http://\""});
  }
}

void RequestParser::take_field(std::string_view name, std::string_view value) {
  if (request_.accept.empty() && is_field(name, "accept")) {
    request_.accept = value;
  }
  const bool replaced = !authority_.empty() && is_field(name, "host");
  request_.headers.emplace_back(name, replaced ? authority_ : value);
}

std::optional<HttpFault> RequestParser::finish_head(const HttpFraming& framing) {
  return framing.fault_of_request(is_11());
}

// --- Answers ---

void ResponseParser::take_start(std::string_view line) {
  const std::optional<std::string_view> version = take_until(line, ' ');
  const std::string_view code = line.substr(0, 3);
  const auto [end, failure] = std::from_chars(code.data(), code.data() + code.size(), status_);
  if (!version || code.size() != 3 || failure != std::errc() || end != code.data() + 3 ||
      status_ < 100 || line.size() < 4 || line[3] != ' ' || !is_field_text(line)) {
    refuse({.why = "its first line is not an answer of HTTP/1.1"});
    return;
  }
  take_version(*version);
  reason_ = line.substr(4);
  headers_.reserve(kUsualFields);
}

void ResponseParser::take_field(std::string_view name, std::string_view value) {
  headers_.emplace_back(name, value);
}

}  // namespace heddle::gateway
