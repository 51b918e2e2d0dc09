#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/answer_format.h"
#include "text/chat_template.h"
#include "text/model_texts.h"
#include "text/tokenizer.h"

namespace heddle::text {

/// What a model directory says about text: tokenizer, chat templates and the tokens that begin and
/// end. Immutable; any thread may use it.
class TextModel {
 public:
  /// Told what is read next: "tokenizer.json", "chat templates".
  using Begins = std::function<void(std::string_view what)>;

  /// Reads of a model, whose GGUF file stands for such files (gguf/gguf_text.h):
  ///
  /// - tokenizer.json, which must be there;
  /// - tokenizer_config.json and special_tokens_map.json (the first wins where both speak);
  /// - chat templates: chat_template.jinja with additional_chat_templates/NAME.jinja, else
  ///   chat_template.json, else `chat_template` of tokenizer_config.json, a string or a list of
  ///   {name, template};
  /// - `eos_token_id` of generation_config.json, else of config.json.
  ///
  /// kNotFound when there is no tokenizer.json; kCorrupt, naming the file within the directory,
  /// when one is broken.
  static Result<std::shared_ptr<const TextModel>> open(const ModelTexts& texts,
                                                       const Begins& begins = {});
  /// Of the model's directory or GGUF file.
  static Result<std::shared_ptr<const TextModel>> open(const std::filesystem::path& model,
                                                       const Begins& begins = {});

  [[nodiscard]] const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }

  /// The template called `name`; null if there is none, as with a base model. The usual one is
  /// called "default"; some models have "tool_use", "rag" and others beside it.
  [[nodiscard]] const ChatTemplate* chat_template(std::string_view name = "default") const;

  /// The template that transformers would use for `chat`: "tool_use" when there are tools and such
  /// a template, else "default"; a single template is used whatever its name. Null if there is
  /// none.
  [[nodiscard]] const ChatTemplate* chat_template_for(const Chat& chat) const;

  /// `chat` as the prompt of this model. kFailedPrecondition when the model has no chat template.
  [[nodiscard]] Result<std::string> render(const Chat& chat) const;

  /// How the chat templates spell calls of tools, and thinking.
  [[nodiscard]] ToolFormat tool_format() const { return tool_format_; }
  [[nodiscard]] ReasoningFormat reasoning_format() const { return reasoning_format_; }
  /// Whether a chat template tells the model of the tools of a chat.
  [[nodiscard]] bool describes_tools() const { return describes_tools_; }

  [[nodiscard]] std::optional<TokenId> bos() const { return bos_; }
  /// Tokens that end an answer, ascending; empty when the model's files name none. Those of
  /// harmony's format, or of Gemma 4's, are among them where a template has it.
  [[nodiscard]] const std::vector<TokenId>& eos() const { return eos_; }

 private:
  TextModel() = default;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::map<std::string, std::shared_ptr<const ChatTemplate>, std::less<>> templates_;
  ToolFormat tool_format_ = ToolFormat::kNone;
  ReasoningFormat reasoning_format_ = ReasoningFormat::kNone;
  bool describes_tools_ = false;
  std::optional<TokenId> bos_;
  std::vector<TokenId> eos_;
};

}  // namespace heddle::text
