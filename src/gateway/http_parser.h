#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/http_exchange.h"
#include "gateway/http_framing.h"

namespace heddle::gateway {

/// One message of HTTP/1.1 or 1.0 as it comes: its head, put straight into records of ours, and its
/// body. HttpFraming tells where it ends; bytes after that are not touched. Trailers and extensions
/// of chunks are looked at and dropped. After a fault nothing more is taken.
class HttpParser {
 public:
  struct Bounds {
    std::size_t head = 32U << 10U;  ///< Of the head; likewise of extensions and trailers together.
    std::uint64_t body = std::numeric_limits<std::uint64_t>::max();
  };

  explicit HttpParser(Bounds bounds)
      : bounds_(bounds), room_(bounds.head), body_room_(bounds.body) {}
  virtual ~HttpParser() = default;
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  /// Takes off `bytes` what could be parsed; the next call begins with what is left. The first goes
  /// no further than the end of the head.
  void put_head(std::string_view& bytes);
  void put(std::string_view& bytes);
  /// The connection has ended: so has a body that nothing else ends. Whether that is all of it.
  bool put_end();

  [[nodiscard]] const std::optional<HttpFault>& fault() const { return fault_; }
  [[nodiscard]] bool is_head_done() const { return stage_ > Stage::kFields; }
  [[nodiscard]] bool is_done() const { return stage_ == Stage::kDone; }

  /// Meaningful when the head is there, as are those below. HTTP/1.1, not 1.0.
  [[nodiscard]] bool is_11() const { return is_11_; }
  /// Whether another message may follow on this one.
  [[nodiscard]] bool keep_alive() const { return !until_end_ && framing_.keep_alive(is_11_); }
  /// Of the body, as the head tells it.
  [[nodiscard]] std::optional<std::uint64_t> content_length() const { return framing_.length(); }
  /// Of the body, what has come and was not taken.
  [[nodiscard]] std::string& body() { return body_; }

 protected:
  void refuse(HttpFault fault) { fault_ = fault_ ? fault_ : fault; }
  /// Takes "HTTP/1.1" or "HTTP/1.0".
  void take_version(std::string_view text);

  virtual void take_start(std::string_view line) = 0;
  virtual void take_field(std::string_view name, std::string_view value) = 0;
  /// The head is there: what is wrong with it by this framing, if anything.
  virtual std::optional<HttpFault> finish_head(const HttpFraming& framing) = 0;
  /// Whether no body follows, whatever the head says.
  [[nodiscard]] virtual bool is_bodiless() const = 0;
  /// Whether a body of which the head says nothing goes on to the end of the connection.
  [[nodiscard]] virtual bool may_end_with_connection() const = 0;

 private:
  enum class Stage : std::uint8_t {
    kStart,
    kFields,
    kLength,
    kChunkSize,
    kChunk,
    kChunkEnd,
    kTrailers,
    kToEnd,
    kDone,
  };

  bool take_line(std::string_view& bytes, std::string_view& line, std::size_t most);
  void take_field_line(std::string_view line);
  void begin_body();
  void take_chunk_size(std::string_view line);
  /// False when more bytes are needed first.
  bool put_some(std::string_view& bytes);
  bool put_chunk_end(std::string_view& bytes);
  void put_data(std::string_view& bytes, Stage next);

  Bounds bounds_;
  HttpFraming framing_{};
  std::optional<HttpFault> fault_{};
  std::string body_{};
  std::size_t scanned_ = 0;  ///< Of the line that has begun, what is known to have no end.
  std::size_t room_;         ///< Of bounds_.head, what is left.
  std::uint64_t body_room_;  ///< Of bounds_.body.
  std::uint64_t left_ = 0;   ///< Of the body or chunk.
  Stage stage_ = Stage::kStart;
  bool blank_taken_ = false;
  bool is_11_ = true;
  bool until_end_ = false;
};

/// Fills all of a request but its body, its id and its principal.
class RequestParser final : public HttpParser {
 public:
  RequestParser(HttpRequest& request, Bounds bounds) : HttpParser(bounds), request_(request) {}

 private:
  void take_start(std::string_view line) override;
  void take_target(std::string_view target);
  void take_field(std::string_view name, std::string_view value) override;
  std::optional<HttpFault> finish_head(const HttpFraming& framing) override;
  [[nodiscard]] bool is_bodiless() const override { return false; }
  [[nodiscard]] bool may_end_with_connection() const override { return false; }

  HttpRequest& request_;
  std::string authority_{};  ///< Of a target that is a whole URI; counts instead of Host.
};

/// The head of an answer, and its body as it comes.
class ResponseParser final : public HttpParser {
 public:
  /// `to_head`: the request was HEAD, so there is no body.
  ResponseParser(bool to_head, Bounds bounds) : HttpParser(bounds), to_head_(to_head) {}

  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] std::string& reason() { return reason_; }
  [[nodiscard]] HttpFields& headers() { return headers_; }

 private:
  void take_start(std::string_view line) override;
  void take_field(std::string_view name, std::string_view value) override;
  std::optional<HttpFault> finish_head(const HttpFraming& framing) override {
    return framing.fault_of_answer(is_11());
  }
  [[nodiscard]] bool is_bodiless() const override {
    return to_head_ || status_ / 100 == 1 || status_ == 204 || status_ == 304;
  }
  [[nodiscard]] bool may_end_with_connection() const override { return true; }

  bool to_head_;
  int status_ = 0;
  std::string reason_{};
  HttpFields headers_{};
};

}  // namespace heddle::gateway
