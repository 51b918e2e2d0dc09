#include "api/response_request.h"

#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/body_reader.h"
#include "api/conversation.h"
#include "api/generation_params.h"
#include "api/object_text.h"
#include "api/output_format.h"
#include "api/responses.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace dom = simdjson::dom;

namespace {

/// Fields of /v1/responses that mean nothing here.
constexpr std::initializer_list<std::string_view> kHarmlessInResponses{"metadata",
                                                                       "service_tier",
                                                                       "safety_identifier",
                                                                       "prompt_cache_key",
                                                                       "prompt_cache_retention",
                                                                       "client_metadata",
                                                                       "max_tool_calls",
                                                                       "include",
                                                                       "text",
                                                                       "moderation"};

/// What is asked for beside an answer.
void read_state(BodyReader& body, ResponseRequest& request) {
  request.store = body.flag("store").value_or(false);
  request.previous = body.text("previous_response_id");
  if (const std::optional<dom::element> value = body.find("conversation")) {
    body.fail(not_supported("conversation",
                            "conversation: is " + describe(*value) +
                                "; there are no conversations, want previous_response_id of a "
                                "response with \"store\": true, or all of it as input"));
  }
  const std::string truncation = body.text("truncation").value_or("disabled");
  if (truncation != "disabled") {
    body.warn("truncation: is \"" + truncation.substr(0, 32) +
              "\"; a conversation that is too long is refused, not shortened");
  }
  body.refuse_unless_neutral({"background", "prompt", "functions", "messages"});
}

/// Log probabilities come on `include`, with the number of alternatives beside it.
void read_logprobs(BodyReader& body, GenerationParams& params) {
  const std::optional<std::int64_t> top = body.integer("top_logprobs", 0, kAlternativesMax);
  const std::optional<dom::element> include = body.find("include");
  dom::array list;
  bool asked = top.value_or(0) > 0;
  if (include && include->get_array().get(list) != simdjson::SUCCESS) {
    body.reject("include", *include, "a list of strings");
    return;
  }
  if (include) {
    for (const dom::element item : list) {
      std::string_view name;
      asked = asked || (item.get_string().get(name) == simdjson::SUCCESS &&
                        name == "message.output_text.logprobs");
    }
  }
  if (asked) {
    params.logprobs = static_cast<std::int32_t>(top.value_or(0));
  }
}

void read_params(BodyReader& body, ChatRequest& chat) {
  chat.params = read_generation_params(body);
  body.refuse_unless_neutral({"prompt_logprobs"});
  if (chat.params.choices > 1) {
    body.fail(not_supported("n", "n: a response has one answer; want 1"));
  }
  if (const auto most =
          body.integer("max_output_tokens", 1, std::numeric_limits<std::int32_t>::max())) {
    chat.params.max_tokens = most;
  }
  read_logprobs(body, chat.params);
  const spec::Grammar format = read_text_format(body);
  if (format.constrains() && chat.params.grammar.constrains()) {
    body.fail(invalid_request(
        "text.format", "text.format: is there beside another constraint of the answer; want one"));
  }
  if (format.constrains()) {
    chat.params.grammar = format;
  }
  chat.tools = read_response_tools(body);
}

using Members = std::vector<std::pair<std::string, std::string>>;  ///< Keys and JSON.

/// An object's JSON with those of `defaults` that it lacks; of anything else, they alone.
std::string completed(const std::optional<dom::element>& value, const Members& defaults) {
  dom::object object;
  const bool is_object = value && value->get_object().get(object) == simdjson::SUCCESS;
  const std::string text = is_object ? std::string(simdjson::minify(object)) : "{}";
  const Result<ObjectText> given = ObjectText::scan(text);
  if (!given) {
    return text;  // More members than any reader of it takes.
  }
  Members lacking;
  for (const auto& member : defaults) {
    const std::optional<std::string_view> own = given->find(member.first);
    if (!own || *own == "null") {
      lacking.push_back(member);
    }
  }
  return given->edited({}, lacking);
}

std::string tools_of(BodyReader& body) {
  std::string text;
  dom::array list;
  const std::optional<dom::element> tools = body.find("tools");
  if (tools && tools->get_array().get(list) == simdjson::SUCCESS) {
    for (const dom::element tool : list) {
      std::string_view type;
      const bool function =
          tool["type"].get_string().get(type) == simdjson::SUCCESS && type == "function";
      text += (text.empty() ? "" : ",") +
              (function ? completed(
                              tool,
                              {{"description", "null"}, {"parameters", "null"}, {"strict", "null"}})
                        : std::string(simdjson::minify(tool)));
    }
  }
  return "[" + text + "]";
}

std::string text_of(BodyReader& body) {
  const std::optional<dom::element> value = body.find("text");
  std::string text = completed(value, {{"format", R"({"type":"text"})"}});
  dom::element format;
  std::string_view type;
  if (value && (*value)["format"].get(format) == simdjson::SUCCESS &&
      format["type"].get_string().get(type) == simdjson::SUCCESS && type == "json_schema") {
    if (const Result<ObjectText> given = ObjectText::scan(text)) {
      return given->edited(
          {}, {{"format", completed(format, {{"description", "null"}, {"strict", "true"}})}});
    }
  }
  return text;
}

/// What the response repeats, with OpenAI's defaults where the request is silent.
/// What is only repeated is no longer than OpenAI allows: sixteen pairs of 64 and 512 characters,
/// and names of 512, in four bytes each.
void bound_what_is_repeated(BodyReader& body) {
  constexpr std::size_t kName = std::size_t{4} * 512;
  constexpr std::size_t kMetadata = std::size_t{16} * 4 * (64 + 512);
  for (const auto& [key, most] : {std::pair("metadata", kMetadata),
                                  std::pair("prompt_cache_key", kName),
                                  std::pair("safety_identifier", kName),
                                  std::pair("user", kName)}) {
    const std::optional<dom::element> value = body.find(key);
    if (value && simdjson::minify(*value).size() > most) {
      body.reject(key, *value, "at most " + std::to_string(most) + " bytes");
    }
  }
}

std::string settings_of(BodyReader& body, const ResponseRequest& request) {
  spec::JsonWriter previous;
  if (request.previous) {
    previous.string(*request.previous);
  } else {
    previous.null();
  }
  std::string text = R"("background":false,"truncation":"disabled","service_tier":"default",)"
                     R"("previous_response_id":)" +
                     previous.text() + ",\"store\":" + (request.store ? "true" : "false") +
                     ",\"tools\":" + tools_of(body) + ",\"text\":" + text_of(body) +
                     ",\"reasoning\":" +
                     completed(body.find("reasoning"), {{"effort", "null"}, {"summary", "null"}});
  const auto repeat = [&](const char* key, const std::string& otherwise) {
    const std::optional<dom::element> value = body.find(key);
    text += ",\"" + std::string(key) +
            "\":" + (value ? std::string(simdjson::minify(*value)) : otherwise);
  };
  for (const char* key : {"instructions",
                          "max_output_tokens",
                          "max_tool_calls",
                          "prompt_cache_key",
                          "safety_identifier",
                          "user"}) {
    repeat(key, "null");
  }
  repeat("metadata", "{}");
  repeat("tool_choice", "\"auto\"");
  repeat("top_logprobs", "0");
  text +=
      std::string(R"(,"parallel_tool_calls":)") + (request.chat.tools.parallel ? "true" : "false");
  return text;
}

}  // namespace

Parsed<ResponseRequest> parse_response_request(std::string_view text) {
  BodyReader body(text);
  ResponseRequest request;
  request.chat.model = body.required_text("model", kModelExample);
  read_state(body, request);
  request.instructions = body.text("instructions").value_or("");
  request.input = read_turns(body);
  request.chat.messages = chat_messages(request.instructions, request.input);
  request.chat.template_variables = read_template_variables(body);
  read_params(body, request.chat);
  for (const Tool& tool : request.chat.tools.list) {
    if (tool.custom) {
      request.custom_tools.push_back(tool.name);
    }
  }
  bound_what_is_repeated(body);
  request.settings = settings_of(body, request);
  request.chat.params.warnings = body.take_warnings(kHarmlessInResponses);
  if (!request.chat.params.warnings.empty()) {
    request.settings += ",\"warnings\":" + warnings_json(request.chat.params.warnings);
  }
  if (!body.ok()) {
    return body.error();
  }
  return request;
}

}  // namespace heddle::api
