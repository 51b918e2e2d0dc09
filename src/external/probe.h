#pragma once

#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "base/http_address.h"
#include "base/result.h"
#include "base/time.h"
#include "spec/engine.h"

namespace heddle::external {

/// Finds out whether an engine still answers as it did: a resume that lost its weights gives an
/// engine that is healthy and talks nonsense. A fixed prompt is asked, with temperature 0 and for a
/// few tokens, at /v1/chat/completions or else /v1/completions.
class Probe {
 public:
  /// @param kind   Whose ways of saying how long an answer has to be it understands.
  /// @param model  As the engine calls it.
  Probe(HttpAddress address, spec::EngineKind kind, std::string model);

  /// Asks twice, when the engine was started. If both answers agree, again() expects the same; if
  /// not, it expects some answer. An engine that answers neither (embeddings, or a dialect of its
  /// own) is judged by its health alone; the log says so.
  boost::asio::awaitable<Result<void>> learn(Duration patience);
  /// Asks again, after a resume. kCorrupt where the answer is not the one that it gave (three
  /// times: an engine that runs other requests too may round differently), kUnavailable where
  /// there is none. Nothing is asked before learn().
  boost::asio::awaitable<Result<void>> again(Duration patience);
  /// As again(), for an engine whose memory stayed where it was: its first token alone will do if
  /// the answer that it gave begins with it. If not, all is asked.
  boost::asio::awaitable<Result<void>> again_briefly(Duration patience);

  /// Asks for one token, whatever it is.
  boost::asio::awaitable<void> touch(Duration patience) const;

  enum class Expectation : std::uint8_t {
    kNothing,    ///< Its health is all there is to go by.
    kAnyAnswer,  ///< Its answers differ.
    kSameAnswer,
  };
  [[nodiscard]] Expectation expectation() const { return expectation_; }

 private:
  struct Answer {
    bool understood = false;  ///< False: the engine has no such call (status 4xx).
    std::string text{};
  };
  boost::asio::awaitable<Result<Answer>> ask(bool chat, int max_tokens, Duration patience) const;

  HttpAddress address_;
  spec::EngineKind kind_;
  std::string model_;
  Expectation expectation_ = Expectation::kNothing;
  bool chat_ = true;
  std::string text_{};
};

/// The text of an answer of either call; nothing where it is not of their form.
[[nodiscard]] std::optional<std::string> answer_text(const std::string& body);

}  // namespace heddle::external
