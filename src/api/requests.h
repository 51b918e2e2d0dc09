#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/error.h"
#include "api/tools.h"
#include "base/ids.h"
#include "base/time.h"
#include "spec/sampling.h"
#include "spec/sampling_numbers.h"

namespace heddle::api {

/// What chat and plain completions have in common. Absent values are the model's to default.
struct GenerationParams {
  spec::SamplingNumbers numbers{};
  std::optional<std::int64_t> top_k{};                  ///< 0 keeps all.
  std::vector<std::pair<TokenId, float>> logit_bias{};  ///< Distinct ids, none negative.
  std::optional<std::uint64_t> seed{};
  /// At least 1; 0 where the prompt is all that is asked for.
  std::optional<std::int64_t> max_tokens{};
  bool score_prompt = false;        ///< `logprobs` is of the prompt's tokens, too.
  std::vector<std::string> stop{};  ///< None empty.
  std::vector<TokenId> stop_token_ids{};
  bool ignore_eos = false;
  std::int64_t min_tokens = 0;           ///< No stop token and no stop string before so many.
  std::vector<std::string> bad_words{};  ///< Texts that are in no answer; none empty.
  std::uint32_t choices = 1;             ///< `n`.
  std::int32_t priority = 0;             ///< Lower runs first.
  /// How long the model stays loaded when nobody uses it; Duration::max() for ever.
  std::optional<Duration> keep_alive{};
  bool stream = false;
  spec::Grammar grammar{};                       ///< What the answer must conform to.
  spec::Pooling pooling = spec::Pooling::kNone;  ///< For embeddings.
  std::optional<std::int32_t> logprobs{};        ///< Of the tokens, with so many alternatives.
  /// Likewise of each token of the prompt, with so many of the likeliest; not in a stream.
  std::optional<std::int32_t> prompt_logprobs{};
  bool include_usage = false;     ///< One more chunk, with the usage, ends the stream.
  bool continuous_usage = false;  ///< Beside that, every chunk has the usage so far.
  std::string user{};
  bool include_stop = false;  ///< Answers end with the stop string that ended them.
  /// What was not done as asked and harms nobody, for people.
  std::vector<std::string> warnings{};
  std::string cache_salt{};  ///< Only requests with the same one share cached prefixes.
};

/// Messages of a conversation, as templates take them.
struct Messages {
  std::string json{};  ///< An array as given; parts of type text are joined to one string.
  /// Of the contents that are not the assistant's [bytes]: what templates put into a prompt as it
  /// is, where they may leave earlier thoughts out.
  std::size_t text_bytes = 0;
};

struct ChatRequest {
  std::string model{};
  Messages messages{};
  std::string template_variables{};  ///< JSON object for the chat template.
  bool add_generation_prompt = true;
  std::string answer_begins{};  ///< What the model goes on from; not part of what it answers.
  /// The last message, which is the assistant's, is gone on with; its text, as templates get it.
  std::optional<std::string> continued{};
  ToolUse tools{};
  GenerationParams params{};
};

/// Text, or the tokens it would become.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  std::string model{};
  std::vector<Prompt> prompts{};  ///< Not empty; each gets `params.choices` answers.
  bool echo = false;              ///< Answers begin with their prompt.
  bool add_special_tokens = true;
  GenerationParams params{};
};

struct TokenizeRequest {
  std::string model{};
  std::optional<std::string> prompt{};  ///< Or `messages`; exactly one of them.
  Messages messages{};
  std::string template_variables{};
  bool add_generation_prompt = true;
  bool add_special_tokens = true;  ///< For `messages` false unless given.
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model{};
  std::vector<TokenId> tokens{};
};

/// Bodies of POST requests, checked: types, ranges, and fields that are known but not supported.
/// Constraints are never ignored. Fields that nobody knows are, with a warning, and so are nulls.
/// Every error has status 400 and names the field, the value and what would be right.
[[nodiscard]] Parsed<ChatRequest> parse_chat_request(std::string_view body);
[[nodiscard]] Parsed<CompletionRequest> parse_completion_request(std::string_view body);
[[nodiscard]] Parsed<TokenizeRequest> parse_tokenize_request(std::string_view body);
[[nodiscard]] Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view body);
/// `{"model": ...}`, as loading and unloading take it: the name.
[[nodiscard]] Parsed<std::string> parse_model_request(std::string_view body);
/// `{"name": ...}`, as choosing a profile takes it: the name; empty where it is null.
[[nodiscard]] Parsed<std::string> parse_profile_request(std::string_view body);
/// A LoRA adapter to be loaded into a running server, as vLLM's clients say it.
struct LoadAdapterRequest {
  std::string name{};  ///< As requests are to call it.
  std::string path{};
  std::string base{};     ///< Its model; empty: nobody has said.
  bool in_place = false;  ///< Instead of the one of its name.
};
/// `{"lora_name": ..., "lora_path": ..., "base_model_name": ..., "load_inplace": ...}`.
[[nodiscard]] Parsed<LoadAdapterRequest> parse_load_adapter_request(std::string_view body);
/// `{"lora_name": ...}`: the name.
[[nodiscard]] Parsed<std::string> parse_unload_adapter_request(std::string_view body);
/// `{"host": ...}`, as draining takes it: the name.
[[nodiscard]] Parsed<std::string> parse_host_request(std::string_view body);

/// `{"configuration": ..., "dry_run": ...}`, as a cluster takes it.
struct ApplyRequest {
  std::string configuration{};  ///< In YAML.
  bool dry_run = false;
};
[[nodiscard]] Parsed<ApplyRequest> parse_apply_request(std::string_view body);

}  // namespace heddle::api
