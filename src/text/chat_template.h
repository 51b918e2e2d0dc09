#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

struct heddle_text_template;

namespace heddle::text {

/// A conversation to be written as a prompt. All JSON is borrowed for the call.
struct Chat {
  std::string_view messages{};  ///< JSON array of objects, passed to the template as they are.
  std::string_view tools{};     ///< JSON array; empty for none.
  /// JSON object of further names the template sees (enable_thinking, documents, ...); may be
  /// empty.
  std::string_view variables{};
  /// Ends the prompt where the model's answer begins.
  bool add_generation_prompt = true;
  /// What strftime_now tells, in seconds since 1970; the clock's time if there is none.
  std::optional<std::int64_t> unix_time{};
};

/// A Jinja chat template, rendered as transformers' apply_chat_template does: block trimming, loop
/// controls, its `tojson`, `raise_exception`, `strftime_now`, `{% generation %}`, Python's methods
/// of strings, lists and dicts. Immutable; any thread may use it.
class ChatTemplate {
 public:
  /// @param source    Jinja; at most a few hundred KB in practice.
  /// @param defaults  JSON object of names that every rendering sees unless the request says
  ///                  otherwise: bos_token, eos_token and such. May be empty.
  /// kCorrupt with the line for a syntax error.
  static Result<std::shared_ptr<const ChatTemplate>> compile(std::string_view source,
                                                             std::string_view defaults = {});

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  /// kInvalidArgument when the JSON is broken, when the template refuses the conversation (its own
  /// words are in the message), or when rendering exceeds its limits (rust/src/template/limits.rs:
  /// steps, 32 MB of output, memory, 100 ms of processor time).
  [[nodiscard]] Result<std::string> render(const Chat& chat) const;

 private:
  explicit ChatTemplate(heddle_text_template* handle) : handle_(handle) {}

  heddle_text_template* handle_;  ///< Owned.
};

}  // namespace heddle::text
