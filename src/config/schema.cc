#include <nlohmann/json.hpp>

#include "config/config.h"
#include "config/declare.h"

namespace heddle::config {

namespace {

using Json = nlohmann::ordered_json;

/// Writes down what is declared to it as a JSON schema of one map.
class SchemaWriter final : public Fields {
 public:
  explicit SchemaWriter(Json& schema) : schema_(schema) {
    schema_["type"] = "object";
    schema_["additionalProperties"] = false;
    schema_["properties"] = Json::object();
  }

  void flag(Key key, bool& value) override {
    add(key, reference("flag"));
    properties()[key.name]["default"] = value;
  }
  void integer(Key key, Range range, std::int64_t& value) override {
    Json number{{"type", "integer"}, {"minimum", range.least}};
    if (range.most != INT64_MAX) {
      number["maximum"] = range.most;
    }
    add(key, Json{{"anyOf", Json::array({number, reference("variable")})}});
    properties()[key.name]["default"] = value;
  }
  void fraction(Key key, double& value) override {
    const Json number{{"type", "number"}, {"minimum", 0}, {"maximum", 1}};
    add(key, Json{{"anyOf", Json::array({number, reference("variable")})}, {"default", value}});
  }
  void text(Key key, std::string&) override { add(key, Json{{"type", "string"}}); }
  void choice(Key key, const std::vector<std::string_view>& names, std::size_t& value) override {
    add(key,
        Json{{"anyOf", Json::array({Json{{"enum", names}}, reference("variable")})},
             {"default", names[value]}});
  }
  void bytes(Key key, std::uint64_t&) override { add(key, reference("bytes")); }
  void rate(Key key, std::uint64_t&) override { add(key, reference("rate")); }
  void duration(Key key, Duration&) override { add(key, reference("duration")); }
  void seconds(Key key, Duration&) override { add(key, reference("seconds")); }
  void path(Key key, std::string&) override { add(key, Json{{"type", "string"}}); }
  void texts(Key key, std::vector<std::string>&) override { add(key, reference("texts")); }
  void entries(Key key,
               const std::function<void(const std::string& text)>& /*plain*/,
               const Declare& declare_inner) override {
    Json inner;
    SchemaWriter writer(inner);
    declare_inner(writer);
    const Json word{{"type", Json::array({"string", "number"})}};
    const Json items{{"anyOf", Json::array({word, inner})}};
    add(key, Json{{"anyOf", Json::array({word, Json{{"type", "array"}, {"items", items}}})}});
  }
  void command(Key key, std::vector<std::string>&) override { add(key, reference("texts")); }
  void named_texts(Key key, std::vector<std::pair<std::string, std::string>>&) override {
    const Json word{{"type", Json::array({"string", "number"})}};
    add(key, Json{{"type", "object"}, {"additionalProperties", word}});
  }
  void values(Key key, std::vector<std::pair<std::string, std::string>>&) override {
    add(key, Json{{"type", "object"}});
  }

  void section(Key key, const Declare& declare_inner) override {
    Json inner;
    SchemaWriter writer(inner);
    declare_inner(writer);
    add(key, inner);
  }
  void sections(Key key, const Declare& declare_inner) override {
    Json inner;
    SchemaWriter writer(inner);
    declare_inner(writer);
    add(key, Json{{"type", "array"}, {"items", inner}});
  }
  void named_sections(Key key, const DeclareNamed& declare_inner) override {
    Json inner;
    SchemaWriter writer(inner);
    declare_inner("", writer);
    add(key, Json{{"type", "object"}, {"additionalProperties", inner}});
  }

  void require(std::string_view key, std::string_view) override {
    schema_["required"].push_back(key);
  }
  void require_one(const std::vector<std::string_view>& keys, std::string_view) override {
    for (const std::string_view key : keys) {
      schema_["anyOf"].push_back(Json{{"required", Json::array({key})}});
    }
  }
  void ignore(const std::vector<std::string_view>& keys, std::string_view) override {
    for (const std::string_view key : keys) {
      properties()[std::string(key)]["description"] = "Read over, without effect.";
    }
  }
  [[nodiscard]] bool has(std::string_view) const override { return false; }
  void reject(std::string_view, const std::string&) override {}
  void warn(std::string_view, const std::string&) override {}

 private:
  static Json reference(const std::string& name) { return Json{{"$ref", "#/$defs/" + name}}; }
  Json& properties() { return schema_["properties"]; }
  void add(Key key, const Json& type) {
    Json property{{"description", key.about}};
    property.update(type);
    properties()[std::string(key.name)] = property;
  }

  Json& schema_;
};

Json pattern(const std::string& regex) {
  return Json{{"type", "string"}, {"pattern", regex}};
}

/// The kinds of value that JSON has no type for.
Json definitions() {
  const std::string variable = "\\$\\{env\\.[^}]+\\}";
  const std::string number = "[0-9]+(\\.[0-9]+)?\\s*";
  const auto or_variable = [&](const std::string& regex) {
    return pattern("^(" + regex + "|" + variable + ")$");
  };
  Json whole{{"type", "integer"}, {"minimum", 0}};
  Json word{{"type", Json::array({"string", "number"})}};
  Json defs;
  defs["variable"] = pattern(variable);
  defs["flag"]["anyOf"] = {Json{{"type", "boolean"}}, Json{{"$ref", "#/$defs/variable"}}};
  defs["bytes"]["anyOf"] = {whole, or_variable(number + "([kKMGT]i?)?B?")};
  defs["rate"]["anyOf"] = {whole, or_variable(number + "([kKMGT]i?)?[Bb]/s")};
  defs["duration"]["anyOf"] = {Json{{"const", 0}}, or_variable(number + "(ns|us|ms|s|m|h)")};
  defs["seconds"]["anyOf"] = {
      whole, or_variable(number + "(ns|us|ms|s|m|h)?"), Json{{"const", -1}}};
  defs["texts"]["anyOf"] = {word, Json{{"type", "array"}, {"items", word}}};
  return defs;
}

}  // namespace

std::string config_schema() {
  Json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "heddle.yaml"},
              {"description", "Configuration of heddle serve."}};
  SchemaWriter writer(schema);
  Config config;
  SwapSettings settings;
  declare(writer, config, settings);
  schema["$defs"] = definitions();
  return schema.dump(2) + "\n";
}

}  // namespace heddle::config
