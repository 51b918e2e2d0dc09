#include "api/output_format.h"

#include <optional>
#include <string>
#include <utility>

#include "spec/json_writer.h"

namespace heddle::api {

namespace dom = simdjson::dom;
using spec::Grammar;
using spec::GrammarKind;

namespace {

constexpr std::size_t kGivenChoicesMax = 1024;

Grammar any_object() {
  return {.kind = GrammarKind::kJsonSchema, .text = R"({"type":"object"})"};
}

/// A schema as an object or a boolean, or as text that holds one.
Grammar schema_of(BodyReader& body, const std::string& param, dom::element value) {
  if (value.is_object() || value.is_bool()) {
    std::string text = simdjson::minify(value);
    body.warn_of_schema(param, text);
    return {.kind = GrammarKind::kJsonSchema, .text = std::move(text)};
  }
  if (value.is_string()) {
    return {.kind = GrammarKind::kJsonSchema, .text = std::string(std::string_view(value))};
  }
  body.reject(param, value, "a JSON schema, which is an object");
  return {};
}

Grammar text_of(BodyReader& body,
                const std::string& param,
                dom::element value,
                GrammarKind kind,
                std::string_view want) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS || text.empty()) {
    body.reject(param, value, want);
    return {};
  }
  return {.kind = kind, .text = std::string(text)};
}

/// One of several texts. JSON's escapes are those of Lark's strings.
Grammar choice_of(BodyReader& body, const std::string& param, dom::element value) {
  dom::array list;
  if (value.get_array().get(list) != simdjson::SUCCESS || list.size() == 0 ||
      list.size() > kGivenChoicesMax) {
    body.reject(param, value, "a list of 1 to 1024 strings");
    return {};
  }
  std::string lark = "start: ";
  bool first = true;
  for (const dom::element item : list) {
    std::string_view text;
    if (item.get_string().get(text) != simdjson::SUCCESS || text.empty()) {
      body.reject(param, item, "strings that are not empty");
      return {};
    }
    spec::JsonWriter literal;
    literal.string(text);
    lark += (first ? "" : " | ") + literal.text();
    first = false;
  }
  return {.kind = GrammarKind::kLark, .text = std::move(lark)};
}

/// What a key of vLLM's asks for; its names are the same with and without "guided_".
Grammar guided(BodyReader& body,
               const std::string& param,
               std::string_view name,
               dom::element value) {
  if (name == "json") {
    return schema_of(body, param, value);
  }
  if (name == "json_object") {
    return value.is_bool() && !bool{value} ? Grammar{} : any_object();
  }
  if (name == "regex") {
    return text_of(body, param, value, GrammarKind::kRegex, "a regular expression");
  }
  if (name == "choice") {
    return choice_of(body, param, value);
  }
  return text_of(body, param, value, GrammarKind::kLark, "a grammar in Lark's syntax");
}

/// Keeps the one grammar that is asked for.
void ask(BodyReader& body, Grammar& grammar, const std::string& param, Grammar next) {
  if (!next.constrains()) {
    return;
  }
  if (grammar.constrains()) {
    body.fail(invalid_request(
        param, param + ": is there beside another constraint of the answer; want one of them"));
  }
  grammar = std::move(next);
}

/// Of `object`, which holds "schema" (and, for people, "name" and "description").
Grammar named_schema(BodyReader& body, const std::string& param, dom::object object) {
  dom::element schema;
  if (object.at_key("schema").get(schema) != simdjson::SUCCESS || schema.is_null()) {
    body.fail(invalid_request(
        param, param + ".schema: is missing; want a JSON schema, which is an object"));
    return {};
  }
  return schema_of(body, param + ".schema", schema);
}

/// A format by its type. OpenAI nests the schema in chat's requests and not in those of responses.
Grammar format_of(BodyReader& body, const std::string& param, dom::element format, bool nested) {
  dom::object object;
  std::string_view type;
  if (format.get_object().get(object) != simdjson::SUCCESS ||
      object.at_key("type").get_string().get(type) != simdjson::SUCCESS) {
    body.reject(param, format, R"(an object such as {"type": "json_object"})");
    return {};
  }
  if (type == "text") {
    return {};
  }
  if (type == "json_object") {
    return any_object();
  }
  if (type != "json_schema") {
    body.fail(invalid_request(param,
                              param + ".type: is \"" + std::string(type) +
                                  R"("; want "text", "json_object" or "json_schema")"));
    return {};
  }
  if (!nested) {
    return named_schema(body, param, object);
  }
  dom::object inner;
  if (object.at_key("json_schema").get_object().get(inner) != simdjson::SUCCESS) {
    body.fail(invalid_request(param + ".json_schema",
                              param + R"(.json_schema: is missing; want {"name", "schema"})"));
    return {};
  }
  return named_schema(body, param + ".json_schema", inner);
}

void read_structured_outputs(BodyReader& body, Grammar& grammar) {
  const std::optional<dom::element> outputs = body.find("structured_outputs");
  dom::object object;
  if (!outputs) {
    return;
  }
  if (outputs->get_object().get(object) != simdjson::SUCCESS) {
    body.reject("structured_outputs", *outputs, R"(an object such as {"regex": "[0-9]+"})");
    return;
  }
  for (const dom::key_value_pair field : object) {
    const std::string param = "structured_outputs." + std::string(field.key);
    if (field.value.is_null()) {
      continue;
    }
    if (field.key == "json" || field.key == "json_object" || field.key == "regex" ||
        field.key == "choice" || field.key == "grammar") {
      ask(body, grammar, param, guided(body, param, field.key, field.value));
    } else {
      body.fail(not_supported(
          param, param + ": is not supported; want json, json_object, regex, choice or grammar"));
    }
  }
}

}  // namespace

Grammar read_output_format(BodyReader& body) {
  Grammar grammar;
  if (const std::optional<dom::element> format = body.find("response_format")) {
    grammar = format_of(body, "response_format", *format, /*nested=*/true);
  }
  for (const std::string_view name : {"json", "regex", "choice", "grammar"}) {
    const std::string param = "guided_" + std::string(name);
    if (const std::optional<dom::element> value = body.find(param)) {
      ask(body, grammar, param, guided(body, param, name, *value));
    }
  }
  read_structured_outputs(body, grammar);
  return grammar;
}

Grammar read_text_format(BodyReader& body) {
  const std::optional<dom::element> text = body.find("text");
  dom::object object;
  if (!text) {
    return {};
  }
  if (text->get_object().get(object) != simdjson::SUCCESS) {
    body.reject("text", *text, R"(an object such as {"format": {"type": "text"}})");
    return {};
  }
  dom::element format;
  if (object.at_key("format").get(format) != simdjson::SUCCESS || format.is_null()) {
    return {};
  }
  return format_of(body, "text.format", format, /*nested=*/false);
}

}  // namespace heddle::api
