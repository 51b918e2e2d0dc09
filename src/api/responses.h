#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "spec/json_writer.h"
#include "spec/sampling.h"

namespace heddle::api {

enum class AnswerKind : std::uint8_t { kChat, kCompletion };

/// What all parts of one answer share.
struct AnswerHead {
  AnswerKind kind = AnswerKind::kChat;
  std::string id{};                     ///< chatcmpl-... or cmpl-...
  std::int64_t created = 0;             ///< Seconds since 1970.
  std::string model{};                  ///< As the request named it.
  std::vector<std::string> warnings{};  ///< What was not done as asked; told where there are any.
  std::string fingerprint{};            ///< Equal seeds give equal answers while this stays.
};

/// Where the time of an answer went, up to now.
struct Spent {
  Duration total{};   ///< Since the request arrived.
  Duration load{};    ///< Of that, waiting for its model to be loaded.
  Duration prompt{};  ///< From being sent to a worker to the first token.
  Duration answer{};  ///< From the first token on.
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;     ///< Of the prompt, whose KV was there already.
  std::int64_t reasoning_tokens = 0;  ///< Of the completion, that were thoughts.
  Spent spent{};
};

/// A token of an answer and how likely it was.
struct TokenChance {
  std::string bytes{};  ///< What it stands for; a part of a character where it is one.
  float logprob = 0.0F;
};

/// The log probability of one token, and those of the likeliest ones in its place.
struct TokenLogprobs {
  TokenChance token{};
  std::vector<TokenChance> top{};
  bool first = false;   ///< Of a prompt: nothing is before it that could make it likely.
  bool hidden = false;  ///< It is special, and not in the text.
};

/// A token that a prompt has at some place, or could have.
struct PromptChance {
  TokenId token = 0;
  TokenChance chance{};
  /// How many tokens are at least as likely, itself included; 0: more than were asked for.
  std::int32_t rank = 0;
};

/// Of each token of a prompt: itself, then the likeliest others; none where nothing is before it.
using PromptLogprobs = std::vector<std::vector<PromptChance>>;

/// A call of a tool that the model asks for.
struct ToolCall {
  std::uint32_t index = 0;  ///< Among the calls of the answer.
  std::string id{};
  std::string name{};  ///< Empty: what follows is the rest of the arguments of a call before it.
  std::string arguments{};  ///< JSON.
  bool whole = true;  ///< Else a limit cut it off, and its arguments are the beginning of JSON.
};

/// One answer, or what is new of it.
struct Choice {
  std::uint32_t index = 0;
  std::string reasoning{};  ///< What the model thought before it answered.
  std::string text{};
  std::vector<ToolCall> calls{};
  spec::FinishReason finish = spec::FinishReason::kNone;
  bool called = false;  ///< With `finish`: the answer had calls.
  std::string stop{};   ///< With `finish`: the stop string that ended it; empty: none did.
  /// Of the tokens that `text` was made of; nothing unless they were asked for.
  std::optional<std::vector<TokenLogprobs>> logprobs{};
  std::int64_t text_offset = 0;                     ///< Characters of the answer before `text`.
  std::optional<PromptLogprobs> prompt_logprobs{};  ///< Of its prompt, where they were asked for.
};

/// Takes in `more`, which continues the same answer.
void append(Choice& choice, Choice more);
/// Whether there is nothing to tell.
[[nodiscard]] bool is_empty(const Choice& choice);

/// A list of strings.
[[nodiscard]] std::string warnings_json(const std::vector<std::string>& warnings);

/// Of text in UTF-8.
[[nodiscard]] std::int64_t count_characters(std::string_view text);

/// "stop", "length", or empty while it runs.
[[nodiscard]] std::string_view finish_name(spec::FinishReason finish);

/// The whole answer, for a request without `stream`.
[[nodiscard]] std::string answer_json(const AnswerHead& head,
                                      const std::vector<Choice>& choices,
                                      const Usage& usage);

/// Writes the JSON of a stream's chunks. What they share is written once, in the constructor.
class ChunkWriter {
 public:
  /// `with_usage`: every chunk has a usage, null in all but the last, as OpenAI sends it on
  /// stream_options.include_usage.
  ChunkWriter(const AnswerHead& head, bool with_usage);

  /// Has the chunks from here on say how much has been used so far.
  void count(const Usage& usage);
  /// The first chunk of a choice of a chat, which says whose turn it is.
  [[nodiscard]] std::string role(std::uint32_t choice) const;
  /// Further text of a choice; with a `finish`, its last.
  [[nodiscard]] std::string text(const Choice& part) const;
  /// A chunk with an empty text, for tokens of a choice that show nothing.
  [[nodiscard]] std::string silence(std::uint32_t choice) const;
  /// The last chunk of the stream.
  [[nodiscard]] std::string usage(const Usage& usage) const;

 private:
  [[nodiscard]] std::string chunk(const std::string& choice) const;

  AnswerKind kind_;
  std::string prefix_{};
  std::string suffix_{};
};

/// How far a model is that is being fetched.
struct FetchObject {
  std::string from{};
  std::uint64_t bytes = 0;
  std::uint64_t total_bytes = 0;
  double bytes_per_second = 0;
};
/// Writes it as an object.
void write_fetch(spec::JsonWriter& json, const FetchObject& fetch);

/// A model as GET /v1/models lists it.
struct ModelObject {
  std::string id{};
  std::int64_t created = 0;
  std::string name{};
  std::string description{};
  std::vector<std::string> aliases{};
  std::string parent{};          ///< Of a LoRA adapter: its model's id.
  std::string_view state{};      ///< unloaded, loading, loaded, sleeping or downloading.
  std::string_view residency{};  ///< The finer state, and on which device.
  std::string_view level{};      ///< How it sleeps, for models that engines of others serve.
  std::string device{};
  std::optional<double> progress{};  ///< Of a load, from 0 to 1.
  std::optional<FetchObject> fetch{};
  std::string failure{};                 ///< Why the last load failed; empty when it did not.
  std::int64_t context_length = 0;       ///< 0 while it is not known.
  Duration slo_ttft{};                   ///< In what time its first token is due; 0: not known.
  Duration slo_tpot{};                   ///< And each of those after it, on average.
  std::string metadata{};                ///< A JSON object of the user's; empty: none.
  std::vector<std::string> in{"text"};   ///< What it takes, of text, audio and image.
  std::vector<std::string> out{"text"};  ///< What it gives.
  bool tools = false;                    ///< It is said to call tools, ...
  bool reranker = false;                 ///< ... to rank texts.
  std::vector<std::string> targets{};    ///< Of a name that stands for models: theirs.
};

[[nodiscard]] std::string model_json(const ModelObject& model);
/// `{"object":"list","data":[...]}`.
[[nodiscard]] std::string model_list_json(const std::vector<ModelObject>& models);

/// Of POST /tokenize. `strings` is empty unless the request asked for them.
[[nodiscard]] std::string tokenize_json(const std::vector<TokenId>& tokens,
                                        std::int64_t context_length,
                                        const std::vector<std::string>& strings);
/// Of POST /detokenize.
[[nodiscard]] std::string detokenize_json(std::string_view prompt);

}  // namespace heddle::api
