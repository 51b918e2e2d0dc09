#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <boost/beast/http/basic_parser.hpp>

#include "gateway/http_exchange.h"

namespace heddle::gateway {

/// HTTP/1.1 as Beast parses it, put straight into records of ours: messages of Beast's own would
/// keep each field in a piece of memory, to be copied from there. Trailers are dropped.
template <bool is_request>
class HttpParser : public boost::beast::http::basic_parser<is_request> {
 public:
  /// Of the body, what has come and was not taken.
  [[nodiscard]] std::string& body() { return body_; }
  /// HTTP/1.1, not 1.0. Meaningful when the head is there, as is the rest.
  [[nodiscard]] bool is_11() const { return version_ >= 11; }

 protected:
  using Error = boost::system::error_code;
  using View = boost::beast::string_view;
  using Field = boost::beast::http::field;

  static std::string_view view(View text) { return {text.data(), text.size()}; }
  void set_version(int version) { version_ = version; }

  /// A field of the head.
  virtual void add(Field field, std::string_view name, std::string_view value) = 0;

 private:
  static constexpr std::uint64_t kReservedMost = 64U << 10U;

  void on_field_impl(Field field, View name, View value, Error& /*failure*/) final {
    if (!headed_) {
      add(field, view(name), view(value));
    }
  }
  void on_header_impl(Error& /*failure*/) final { headed_ = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, Error& /*failure*/) final {
    body_.reserve(static_cast<std::size_t>(std::min(length.value_or(0), kReservedMost)));
  }
  std::size_t on_body_impl(View part, Error& /*failure*/) final {
    body_.append(part.data(), part.size());
    return part.size();
  }
  void on_chunk_header_impl(std::uint64_t /*size*/, View /*ext*/, Error& /*failure*/) final {}
  std::size_t on_chunk_body_impl(std::uint64_t /*left*/, View part, Error& failure) final {
    return on_body_impl(part, failure);
  }
  void on_finish_impl(Error& /*failure*/) final {}

  std::string body_{};
  int version_ = 0;
  bool headed_ = false;
};

/// Fills all of a request but its body, its id and its guest.
class RequestParser final : public HttpParser<true> {
 public:
  explicit RequestParser(HttpRequest& request) : request_(request) {}

 private:
  static constexpr std::size_t kUsualFields = 12;

  void on_request_impl(boost::beast::http::verb method,
                       View method_text,
                       View target_text,
                       int version,
                       Error& /*failure*/) override {
    set_version(version);
    const std::string_view target = view(target_text);
    const std::size_t mark = target.find('?');
    request_.head_only = method == boost::beast::http::verb::head;
    request_.method = request_.head_only ? "GET" : view(method_text);
    request_.path = target.substr(0, mark);
    request_.query = mark == std::string_view::npos ? "" : target.substr(mark + 1);
    request_.headers.reserve(kUsualFields);
  }
  void on_response_impl(int /*s*/, View /*r*/, int /*v*/, Error& /*failure*/) override {}
  void add(Field field, std::string_view name, std::string_view value) override {
    if (field == Field::accept && request_.accept.empty()) {
      request_.accept = value;
    }
    request_.headers.emplace_back(name, value);
  }

  HttpRequest& request_;
};

/// The head of an answer, as it comes.
class ResponseParser final : public HttpParser<false> {
 public:
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] std::string& reason() { return reason_; }
  [[nodiscard]] HttpFields& headers() { return headers_; }

 private:
  static constexpr std::size_t kUsualFields = 12;

  void on_request_impl(boost::beast::http::verb /*method*/,
                       View /*method_text*/,
                       View /*target*/,
                       int /*version*/,
                       Error& /*failure*/) override {}
  void on_response_impl(int status, View reason, int version, Error& /*failure*/) override {
    set_version(version);
    status_ = status;
    reason_ = view(reason);
    headers_.reserve(kUsualFields);
  }
  void add(Field /*field*/, std::string_view name, std::string_view value) override {
    headers_.emplace_back(name, value);
  }

  int status_ = 0;
  std::string reason_{};
  HttpFields headers_{};
};

}  // namespace heddle::gateway
