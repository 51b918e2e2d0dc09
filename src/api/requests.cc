#include "api/requests.h"

#include <utility>

#include "api/generation_params.h"
#include "api/messages.h"
#include "api/object_text.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

constexpr std::size_t kPromptsMax = 128;
constexpr std::size_t kDetokenizedMax = std::size_t{1} << 20U;

/// The request, or what was wrong with it.
template <class T>
Parsed<T> finish(BodyReader& body, T request) {
  if constexpr (requires { request.params.warnings; }) {
    request.params.warnings = body.take_warnings(kHarmless);
  }
  if (!body.ok()) {
    return body.error();
  }
  return request;
}

/// Fields that ask for a kind of answer other than text.
void refuse_other_modalities(BodyReader& body) {
  if (const std::optional<dom::element> modalities = body.find("modalities")) {
    if (std::string(simdjson::minify(*modalities)) != "[\"text\"]") {
      body.fail(not_supported("modalities", "modalities: only [\"text\"] is supported"));
    }
  }
}

/// Chat's way to ask for log probabilities: a flag and a number.
void read_chat_logprobs(BodyReader& body, GenerationParams& params) {
  const bool wanted = body.flag("logprobs").value_or(false);
  const std::optional<std::int64_t> top = body.integer("top_logprobs", 0, kAlternativesMax);
  if (wanted) {
    params.logprobs = static_cast<std::int32_t>(top.value_or(0));
  } else if (top.value_or(0) > 0) {
    body.fail(invalid_request("top_logprobs",
                              "top_logprobs: is " + std::to_string(*top) +
                                  "; want it only together with \"logprobs\": true"));
  }
}

/// vLLM's way to ask how likely the prompt is.
void read_prompt_logprobs(BodyReader& body, GenerationParams& params) {
  const std::optional<std::int64_t> top = body.integer("prompt_logprobs", 0, kAlternativesMax);
  if (!top) {
    return;
  }
  params.prompt_logprobs = static_cast<std::int32_t>(*top);
  if (params.stream) {
    body.fail(invalid_request("prompt_logprobs",
                              "prompt_logprobs: is there with \"stream\": true; a stream does not "
                              "tell of its prompt"));
  }
}

/// `continue_final_message`: the conversation ends within the assistant's last message.
void read_continued(BodyReader& body, ChatRequest& request) {
  if (!body.flag("continue_final_message").value_or(false)) {
    return;
  }
  const std::optional<dom::element> messages = body.find("messages");
  dom::array list;
  std::string_view role;
  std::string_view content;
  if (messages && messages->get_array().get(list) == simdjson::SUCCESS && list.size() > 0) {
    const dom::element last = list.at(list.size() - 1).value_unsafe();
    (void)last["role"].get_string().get(role);
    (void)last["content"].get_string().get(content);
  }
  if (role != "assistant" || content.empty()) {
    body.fail(invalid_request("continue_final_message",
                              "continue_final_message: is true; want it only where the last "
                              "message is the assistant's and has a text"));
  } else if (request.add_generation_prompt) {
    body.fail(invalid_request("add_generation_prompt",
                              "add_generation_prompt: want false with continue_final_message"));
  }
  request.continued = content;
}

/// The older way, of plain completions: just a number, of which 0 asks for the tokens' own.
void read_completion_logprobs(BodyReader& body, CompletionRequest& request) {
  const std::optional<std::int64_t> top = body.integer("logprobs", 0, kAlternativesMax);
  if (!top) {
    return;
  }
  request.params.logprobs = static_cast<std::int32_t>(*top);
}

}  // namespace

std::vector<Prompt> read_prompts(BodyReader& body, std::string_view key, std::size_t most) {
  const std::string name(key);
  std::vector<Prompt> prompts;
  const std::optional<dom::element> value = body.find(key);
  if (!value) {
    body.fail(invalid_request(
        name, name + ": is missing; want a string, a list of strings, or token ids"));
    return prompts;
  }
  std::string_view text;
  if (value->get_string().get(text) == simdjson::SUCCESS) {
    prompts.emplace_back(std::string(text));
    return prompts;
  }
  dom::array list;
  if (value->get_array().get(list) != simdjson::SUCCESS || list.size() == 0) {
    body.reject(key, *value, "a string, a list of strings, or token ids");
    return prompts;
  }
  if ((*list.begin()).is_number()) {
    prompts.emplace_back(body.tokens(key, *value));
    return prompts;
  }
  if (list.size() > most) {
    body.reject(key, *value, "at most " + std::to_string(most) + " of them");
    return prompts;
  }
  for (const dom::element item : list) {
    if (item.get_string().get(text) == simdjson::SUCCESS) {
      prompts.emplace_back(std::string(text));
    } else {
      prompts.emplace_back(body.tokens(key, item));
    }
  }
  return prompts;
}

Parsed<ChatRequest> parse_chat_request(std::string_view text) {
  BodyReader body(text);
  ChatRequest request;
  request.model = body.required_text("model", kModelExample);
  request.messages = read_messages(body);
  request.template_variables = read_template_variables(body);
  request.add_generation_prompt = body.flag("add_generation_prompt").value_or(true);
  read_continued(body, request);
  request.params = read_generation_params(body);
  read_chat_logprobs(body, request.params);
  read_prompt_logprobs(body, request.params);
  request.tools = read_chat_tools(body);
  refuse_other_modalities(body);
  body.refuse_unless_neutral({"functions",
                              "function_call",
                              "audio",
                              "prediction",
                              "web_search_options",
                              "chat_template",
                              "documents"});
  return finish(body, std::move(request));
}

Parsed<CompletionRequest> parse_completion_request(std::string_view text) {
  BodyReader body(text);
  CompletionRequest request;
  request.model = body.required_text("model", kModelExample);
  request.prompts = read_prompts(body, "prompt", kPromptsMax);
  request.echo = body.flag("echo").value_or(false);
  request.add_special_tokens = body.flag("add_special_tokens").value_or(true);
  // Nothing is generated where a prompt is all that is asked for, as evaluations do.
  request.params = read_generation_params(body, request.echo ? 0 : 1);
  refuse_other_modalities(body);
  read_completion_logprobs(body, request);
  read_prompt_logprobs(body, request.params);
  body.refuse_unless_neutral({"suffix"});
  const std::optional<std::int64_t> best_of = body.integer("best_of", 1, 128);
  if (best_of && *best_of != std::int64_t{request.params.choices}) {
    body.fail(not_supported("best_of", "best_of: differs from n; that is not supported"));
  }
  if (request.prompts.size() * request.params.choices > kPromptsMax) {
    body.fail(invalid_request("n",
                              "n: " + std::to_string(request.prompts.size()) + " prompts with " +
                                  std::to_string(request.params.choices) +
                                  " answers each; want at most 128 answers"));
  }
  return finish(body, std::move(request));
}

Parsed<TokenizeRequest> parse_tokenize_request(std::string_view text) {
  BodyReader body(text);
  TokenizeRequest request;
  request.model = body.required_text("model", kModelExample);
  request.prompt = body.text("prompt");
  const bool has_messages = body.find("messages").has_value();
  if (body.ok() && request.prompt.has_value() == has_messages) {
    body.fail(invalid_request("prompt", "prompt: want either prompt or messages"));
  }
  if (has_messages) {
    request.messages = read_messages(body);
    request.template_variables = read_template_variables(body);
  }
  request.add_generation_prompt = body.flag("add_generation_prompt").value_or(true);
  request.add_special_tokens = body.flag("add_special_tokens").value_or(!has_messages);
  request.return_token_strs = body.flag("return_token_strs").value_or(false);
  return finish(body, std::move(request));
}

Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view text) {
  BodyReader body(text);
  DetokenizeRequest request;
  request.model = body.required_text("model", kModelExample);
  if (const std::optional<dom::element> tokens = body.find("tokens")) {
    request.tokens = body.tokens("tokens", *tokens);
    if (request.tokens.size() > kDetokenizedMax) {
      body.reject("tokens", *tokens, "at most " + std::to_string(kDetokenizedMax) + " token ids");
    }
  } else {
    body.fail(invalid_request("tokens", "tokens: is missing; want a list of token ids"));
  }
  return finish(body, std::move(request));
}

Parsed<std::string> parse_model_request(std::string_view text) {
  BodyReader body(text);
  std::string model = body.required_text("model", kModelExample);
  return finish(body, std::move(model));
}

Parsed<std::string> parse_profile_request(std::string_view text) {
  BodyReader body(text);
  std::string name = body.text("name").value_or("");
  const Result<ObjectText> object = ObjectText::scan(text);
  if (body.ok() && object && !object->find("name")) {
    body.fail(invalid_request("name", "name: is missing; want the name of a profile, or null"));
  }
  return finish(body, std::move(name));
}

namespace {

std::string adapter_name(BodyReader& body) {
  return body.required_text("lora_name", "as in {\"lora_name\": \"sql-bot\"}");
}

}  // namespace

Parsed<LoadAdapterRequest> parse_load_adapter_request(std::string_view text) {
  BodyReader body(text);
  LoadAdapterRequest request;
  request.name = adapter_name(body);
  request.path = body.required_text("lora_path", "a directory below one of adapters.directories");
  request.base = body.text("base_model_name").value_or("");
  request.in_place = body.flag("load_inplace").value_or(false);
  return finish(body, std::move(request));
}

Parsed<std::string> parse_unload_adapter_request(std::string_view text) {
  BodyReader body(text);
  std::string name = adapter_name(body);
  return finish(body, std::move(name));
}

Parsed<std::string> parse_host_request(std::string_view text) {
  BodyReader body(text);
  std::string host =
      body.required_text("host", "a name as GET /api/hosts lists it, as in {\"host\": \"h1\"}");
  return finish(body, std::move(host));
}

Parsed<ApplyRequest> parse_apply_request(std::string_view text) {
  BodyReader body(text);
  ApplyRequest request;
  request.configuration = body.required_text("configuration", "the text of a heddle.yaml");
  request.dry_run = body.flag("dry_run").value_or(false);
  return finish(body, std::move(request));
}

}  // namespace heddle::api
