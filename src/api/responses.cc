#include "api/responses.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/logprobs_json.h"
#include "spec/json_writer.h"

namespace heddle::api {

using spec::JsonWriter;

namespace {

void write_finish(JsonWriter& json, const Choice& choice) {
  json.key("finish_reason");
  if (choice.finish == spec::FinishReason::kNone) {
    json.null();
  } else if (choice.finish == spec::FinishReason::kStop && choice.called) {
    json.string("tool_calls");
  } else {
    json.string(finish_name(choice.finish));
  }
}

/// `indexed`: as a part of a stream, where clients put calls together by their index.
void write_calls(JsonWriter& json, const std::vector<ToolCall>& calls, bool indexed) {
  json.key("tool_calls").begin_array();
  for (const ToolCall& call : calls) {
    json.begin_object();
    if (indexed) {
      json.key("index").integer(call.index);
    }
    if (!call.name.empty()) {
      json.key("id").string(call.id).key("type").string("function");
    }
    json.key("function").begin_object();
    if (!call.name.empty()) {
      json.key("name").string(call.name);
    }
    json.key("arguments").string(call.arguments);
    json.end_object().end_object();
  }
  json.end_array();
}

void write_message(JsonWriter& json, const Choice& choice) {
  json.key("message").begin_object().key("role").string("assistant").key("content");
  if (choice.text.empty() && !choice.calls.empty()) {
    json.null();
  } else {
    json.string(choice.text);
  }
  json.key("refusal").null().key("annotations").begin_array().end_array();
  if (!choice.reasoning.empty()) {
    json.key("reasoning_content").string(choice.reasoning);
  }
  if (!choice.calls.empty()) {
    write_calls(json, choice.calls, /*indexed=*/false);
  }
  json.end_object();
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object();
  json.key("prompt_tokens").integer(usage.prompt_tokens);
  json.key("completion_tokens").integer(usage.completion_tokens);
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.key("cached_tokens").integer(usage.cached_tokens).end_object();
  json.key("completion_tokens_details").begin_object();
  json.key("reasoning_tokens").integer(usage.reasoning_tokens).end_object();
  json.end_object();
}

void write_logprobs(JsonWriter& json, AnswerKind kind, const Choice& choice) {
  json.key("logprobs");
  if (!choice.logprobs) {
    json.null();
  } else if (kind == AnswerKind::kChat) {
    json.begin_object().key("content");
    write_logprobs(json, *choice.logprobs);
    json.key("refusal").null().end_object();
  } else {
    write_completion_logprobs(json, *choice.logprobs, choice.text_offset);
  }
}

/// Opens the object and writes what every answer begins with.
JsonWriter begin(const AnswerHead& head, std::string_view object) {
  JsonWriter json;
  json.begin_object().key("id").string(head.id).key("object").string(object);
  json.key("created").integer(head.created).key("model").string(head.model);
  json.key("system_fingerprint").string(head.fingerprint);
  return json;
}

void write_strings(JsonWriter& json, const std::vector<std::string>& strings) {
  json.begin_array();
  for (const std::string& string : strings) {
    json.string(string);
  }
  json.end_array();
}

/// What it can do, under the names that clients of llama-swap look for.
void write_capabilities(JsonWriter& json, const ModelObject& model) {
  const auto has = [](const std::vector<std::string>& list, const char* what) {
    return std::find(list.begin(), list.end(), what) != list.end();
  };
  json.key("architecture").begin_object().key("input_modalities");
  write_strings(json, model.in);
  json.key("output_modalities");
  write_strings(json, model.out);
  json.end_object();
  const bool image = has(model.in, "image");
  const std::pair<const char*, bool> all[] = {
      {"vision", image},
      {"audio_transcriptions", has(model.in, "audio") && has(model.out, "text")},
      {"audio_speech", has(model.in, "text") && has(model.out, "audio")},
      {"image_generation", has(model.in, "text") && has(model.out, "image")},
      {"image_to_image", image && has(model.out, "image")},
      {"function_calling", model.tools},
      {"reranker", model.reranker}};
  const bool any =
      std::any_of(std::begin(all), std::end(all), [](const auto& one) { return one.second; });
  if (any) {
    json.key("capabilities").begin_object();
    for (const auto& [name, can] : all) {
      if (can) {
        json.key(name).boolean(true);
      }
    }
    json.end_object();
  }
  if (model.tools) {
    json.key("supported_parameters")
        .begin_array()
        .string("tools")
        .string("tool_choice")
        .end_array();
  }
}

void write_model(JsonWriter& json, const ModelObject& model) {
  json.begin_object().key("id").string(model.id).key("object").string("model");
  json.key("created").integer(model.created).key("owned_by").string("heddle");
  if (!model.name.empty()) {
    json.key("name").string(model.name);
  }
  if (!model.description.empty()) {
    json.key("description").string(model.description);
  }
  if (!model.parent.empty()) {
    json.key("parent").string(model.parent);  // vLLM's name.
  }
  json.key("aliases");
  write_strings(json, model.aliases);
  if (!model.targets.empty()) {
    json.key("targets");
    write_strings(json, model.targets);
  }
  json.key("status").begin_object();
  json.key("value").string(model.state).key("residency").string(model.residency);
  if (!model.level.empty()) {
    json.key("level").string(model.level);
  }
  if (!model.device.empty()) {
    json.key("device").string(model.device);
  }
  if (model.progress) {
    json.key("progress").number(*model.progress);
  }
  if (model.fetch) {
    json.key("fetch");
    write_fetch(json, *model.fetch);
  }
  json.key("failed").boolean(!model.failure.empty());
  if (!model.failure.empty()) {
    json.key("error").string(model.failure);
  }
  json.end_object();
  write_capabilities(json, model);
  if (model.context_length > 0) {
    json.key("context_length").integer(model.context_length);
    json.key("max_model_len").integer(model.context_length);  // vLLM's name.
  }
  if (model.slo_ttft > Duration{}) {
    const auto ms = [](Duration time) { return std::chrono::duration<double, std::milli>(time); };
    json.key("slo").begin_object().key("ttft_ms").number(ms(model.slo_ttft).count());
    json.key("tpot_ms").number(ms(model.slo_tpot).count()).end_object();
  }
  if (!model.metadata.empty()) {
    // Where clients of llama-swap look for it.
    json.key("meta").begin_object().key("llamaswap").json(model.metadata).end_object();
  }
  json.end_object();
}

}  // namespace

void append(Choice& choice, Choice more) {
  choice.reasoning += more.reasoning;
  choice.text += more.text;
  for (ToolCall& call : more.calls) {
    if (call.name.empty() && !choice.calls.empty()) {
      choice.calls.back().arguments += call.arguments;
      choice.calls.back().whole = call.whole;
    } else {
      choice.calls.push_back(std::move(call));
    }
  }
  choice.finish = more.finish;
  choice.called = more.called;
  choice.stop = std::move(more.stop);
  if (more.logprobs) {
    if (!choice.logprobs) {
      choice.logprobs.emplace();
    }
    std::move(more.logprobs->begin(), more.logprobs->end(), std::back_inserter(*choice.logprobs));
  }
  if (more.prompt_logprobs) {
    choice.prompt_logprobs = std::move(more.prompt_logprobs);
  }
}

bool is_empty(const Choice& choice) {
  return choice.reasoning.empty() && choice.text.empty() && choice.calls.empty() &&
         choice.finish == spec::FinishReason::kNone &&
         (!choice.logprobs || choice.logprobs->empty());
}

std::string warnings_json(const std::vector<std::string>& warnings) {
  JsonWriter json;
  json.begin_array();
  for (const std::string& warning : warnings) {
    json.string(warning);
  }
  return std::move(json.end_array()).take();
}

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  });
}

std::string_view finish_name(spec::FinishReason finish) {
  switch (finish) {
    case spec::FinishReason::kNone:
      return "";
    case spec::FinishReason::kStop:
      return "stop";
    case spec::FinishReason::kLength:
      return "length";
  }
  return "";
}

std::string answer_json(const AnswerHead& head,
                        const std::vector<Choice>& choices,
                        const Usage& usage) {
  const bool chat = head.kind == AnswerKind::kChat;
  JsonWriter json = begin(head, chat ? "chat.completion" : "text_completion");
  json.key("choices").begin_array();
  for (const Choice& choice : choices) {
    json.begin_object().key("index").integer(choice.index);
    if (chat) {
      write_message(json, choice);
    } else {
      json.key("text").string(choice.text);
    }
    write_logprobs(json, head.kind, choice);
    if (!chat && choice.prompt_logprobs) {
      json.key("prompt_logprobs");
      write_prompt_logprobs(json, *choice.prompt_logprobs);
    }
    write_finish(json, choice);
    json.end_object();
  }
  json.end_array();
  if (chat && !choices.empty() && choices.front().prompt_logprobs) {
    json.key("prompt_logprobs");  // All choices have the same prompt.
    write_prompt_logprobs(json, *choices.front().prompt_logprobs);
  }
  json.key("usage");
  write_usage(json, usage);
  if (!head.warnings.empty()) {
    json.key("warnings").json(warnings_json(head.warnings));
  }
  json.end_object();
  return std::move(json).take();
}

ChunkWriter::ChunkWriter(const AnswerHead& head, bool with_usage) : kind_(head.kind) {
  const bool chat = kind_ == AnswerKind::kChat;
  prefix_ = begin(head, chat ? "chat.completion.chunk" : "text_completion").text();
  prefix_ += ",\"choices\":[";
  suffix_ = with_usage ? "],\"usage\":null}" : "]}";
}

void ChunkWriter::count(const Usage& usage) {
  JsonWriter json;
  write_usage(json, usage);
  suffix_ = "],\"usage\":" + json.text() + "}";
}

std::string ChunkWriter::chunk(const std::string& choice) const {
  std::string text;
  text.reserve(prefix_.size() + choice.size() + suffix_.size());
  text += prefix_;
  text += choice;
  text += suffix_;
  return text;
}

std::string ChunkWriter::role(std::uint32_t choice) const {
  JsonWriter json;
  json.begin_object().key("index").integer(choice).key("delta").begin_object();
  json.key("role").string("assistant").key("content").string("").end_object();
  json.key("logprobs").null().key("finish_reason").null().end_object();
  return chunk(json.text());
}

std::string ChunkWriter::text(const Choice& part) const {
  JsonWriter json;
  json.begin_object().key("index").integer(part.index);
  if (kind_ == AnswerKind::kChat) {
    json.key("delta").begin_object();
    if (!part.reasoning.empty()) {
      json.key("reasoning_content").string(part.reasoning);
    }
    if (!part.text.empty()) {
      json.key("content").string(part.text);
    }
    if (!part.calls.empty()) {
      write_calls(json, part.calls, /*indexed=*/true);
    }
    json.end_object();
  } else {
    json.key("text").string(part.text);
  }
  write_logprobs(json, kind_, part);
  write_finish(json, part);
  json.end_object();
  return chunk(json.text());
}

std::string ChunkWriter::silence(std::uint32_t choice) const {
  JsonWriter json;
  json.begin_object().key("index").integer(choice);
  if (kind_ == AnswerKind::kChat) {
    json.key("delta").begin_object().key("content").string("").end_object();
  } else {
    json.key("text").string("");
  }
  json.key("logprobs").null().key("finish_reason").null().end_object();
  return chunk(json.text());
}

std::string ChunkWriter::usage(const Usage& usage) const {
  JsonWriter json;
  write_usage(json, usage);
  return prefix_ + "],\"usage\":" + json.text() + "}";
}

void write_fetch(JsonWriter& json, const FetchObject& fetch) {
  json.begin_object().key("from").string(fetch.from).key("bytes").integer(fetch.bytes);
  json.key("total_bytes").integer(fetch.total_bytes);
  json.key("bytes_per_second").number(fetch.bytes_per_second).end_object();
}

std::string model_json(const ModelObject& model) {
  JsonWriter json;
  write_model(json, model);
  return std::move(json).take();
}

std::string model_list_json(const std::vector<ModelObject>& models) {
  JsonWriter json;
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (const ModelObject& model : models) {
    write_model(json, model);
  }
  json.end_array().end_object();
  return std::move(json).take();
}

std::string tokenize_json(const std::vector<TokenId>& tokens,
                          std::int64_t context_length,
                          const std::vector<std::string>& strings) {
  JsonWriter json;
  json.begin_object().key("count").integer(tokens.size());
  json.key("max_model_len").integer(context_length).key("tokens").begin_array();
  for (const TokenId token : tokens) {
    json.integer(token);
  }
  json.end_array().key("token_strs");
  if (strings.empty()) {
    json.null();
  } else {
    json.begin_array();
    for (const std::string& text : strings) {
      json.string(text);
    }
    json.end_array();
  }
  json.end_object();
  return std::move(json).take();
}

std::string detokenize_json(std::string_view prompt) {
  JsonWriter json;
  json.begin_object().key("prompt").string(prompt).end_object();
  return std::move(json).take();
}

}  // namespace heddle::api
