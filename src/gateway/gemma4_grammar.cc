#include "gateway/gemma4_grammar.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/grammar_text.h"
#include "spec/json.h"
#include "spec/json_writer.h"
#include "text/gemma4.h"

namespace heddle::gateway {

namespace {

using spec::Json;

/// Rules of a tool at most; what a schema has beyond may be any value.
constexpr std::size_t kRulesMax = 500;

/// Whether `b` belongs behind `a`, as Jinja's dictsort has keys.
bool is_before(const Json::Member* a, const Json::Member* b) {
  const auto lower = [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  };
  return std::ranges::lexicographical_compare(a->key, b->key, {}, lower, lower);
}

/// Makes rules of the schema of one tool's arguments.
class SchemaRules {
 public:
  SchemaRules(const Json& root, std::string prefix, std::string quote)
      : root_(root), prefix_(std::move(prefix)), quote_(std::move(quote)) {}

  /// What conforms to the root, an object, as the right side of a rule.
  std::string arguments() { return object_of(root_); }

  /// The rules that this has come to need.
  [[nodiscard]] const std::string& rules() const { return rules_; }

 private:
  /// The name of a rule for `body`.
  std::string add(const std::string& body) {
    const std::string name = prefix_ + "r" + std::to_string(count_++);
    rules_ += name + ": " + body + "\n";
    return name;
  }

  std::string value_of(const Json& schema) {
    if (count_ + references_.size() >= kRulesMax) {
      return "any";
    }
    if (const Json* reference = schema.find("$ref")) {
      const auto* path = reference->as<std::string>();
      return path == nullptr ? "any" : referred(*path);
    }
    if (const Json* constant = schema.find("const")) {
      return spelled(*constant).value_or("any");
    }
    for (const char* key : {"enum", "anyOf", "oneOf"}) {
      const Json* list = schema.find(key);
      if (list != nullptr && list->as<Json::Array>() != nullptr) {
        return alternatives(*list->as<Json::Array>(), std::string_view(key) == "enum");
      }
    }
    const Json* type = schema.find("type");
    if (type != nullptr && type->as<Json::Array>() != nullptr) {
      std::string types;
      for (const Json& one : *type->as<Json::Array>()) {
        types += (types.empty() ? "" : " | ") + of_type(schema, one);
      }
      return types.empty() ? "any" : add(types);
    }
    return type == nullptr ? "any" : of_type(schema, *type);
  }

  std::string of_type(const Json& schema, const Json& type) {
    const auto* name = type.as<std::string>();
    if (name == nullptr) {
      return "any";
    }
    if (*name == "string" || *name == "integer" || *name == "number" || *name == "boolean") {
      return *name;
    }
    if (*name == "null") {
      return "\"null\"";
    }
    if (*name == "array") {
      const Json* items = schema.find("items");
      const std::string item = items == nullptr ? "any" : value_of(*items);
      return add("\"[\" (" + item + " (\",\" " + item + ")*)? \"]\"");
    }
    return *name == "object" ? add(object_of(schema)) : "any";
  }

  std::string object_of(const Json& schema) {
    std::vector<const Json::Member*> members;
    const Json* properties = schema.find("properties");
    if (properties != nullptr && properties->as<Json::Object>() != nullptr) {
      for (const Json::Member& member : *properties->as<Json::Object>()) {
        members.push_back(&member);
      }
    }
    if (members.empty()) {
      const Json* more = schema.find("additionalProperties");
      const bool none = more != nullptr && more->as<bool>() != nullptr && !*more->as<bool>();
      return none ? "\"{\" \"}\"" : "object";
    }
    std::ranges::sort(members, is_before);
    return "\"{\" " + members_of(schema, members) + " \"}\"";
  }

  /// Members of an object, some of which may be left out, with commas between those that stand.
  std::string members_of(const Json& schema, const std::vector<const Json::Member*>& members) {
    std::string first;  // This member and the later ones, where none stands before them.
    std::string rest;   // Likewise, behind one.
    bool needed = false;
    for (auto at = members.rbegin(); at != members.rend(); ++at) {
      const std::string pair = literal((*at)->key + ":") + " " + value_of((*at)->value);
      const bool required = is_required(schema, (*at)->key);
      const std::string all = pair + " " + rest;
      first = add(required || first.empty() ? all : all + " | " + first);
      const std::string behind = "\",\" " + pair;
      rest = add((required ? behind : "(" + behind + ")?") + " " + rest);
      needed = needed || required;
    }
    return needed ? first : "(" + first + ")?";
  }

  static bool is_required(const Json& schema, std::string_view key) {
    const Json* required = schema.find("required");
    const auto* keys = required == nullptr ? nullptr : required->as<Json::Array>();
    return keys != nullptr && std::ranges::any_of(*keys, [key](const Json& one) {
             return one.as<std::string>() != nullptr && *one.as<std::string>() == key;
           });
  }

  std::string alternatives(const Json::Array& list, bool values) {
    std::string all;
    for (const Json& one : list) {
      all += (all.empty() ? "" : " | ") + (values ? spelled(one).value_or("any") : value_of(one));
    }
    return all.empty() ? "any" : add(all);
  }

  /// A rule for what `#/...` points to, made once: it may refer to itself.
  std::string referred(const std::string& path) {
    if (const auto known = references_.find(path); known != references_.end()) {
      return known->second;
    }
    if (!path.starts_with("#/")) {
      return "any";
    }
    const Json* found = &root_;
    for (std::size_t at = 2; found != nullptr && at <= path.size();) {
      const std::size_t end = std::min(path.find('/', at), path.size());
      found = found->find(path.substr(at, end - at));
      at = end + 1;
    }
    if (found == nullptr) {
      return "any";
    }
    const std::string name = prefix_ + "d" + std::to_string(references_.size());
    references_.emplace(path, name);
    const std::string body = value_of(*found);
    rules_ += name + ": " + body + "\n";
    return name;
  }

  /// A scalar as models write it; nothing for others.
  [[nodiscard]] std::optional<std::string> spelled(const Json& value) const {
    if (const auto* text = value.as<std::string>()) {
      return quote_ + (text->empty() ? " " : " " + literal(*text) + " ") + quote_;
    }
    if (const auto* flag = value.as<bool>()) {
      return *flag ? "\"true\"" : "\"false\"";
    }
    if (const auto* whole = value.as<std::int64_t>()) {
      return literal(std::to_string(*whole));
    }
    if (const auto* number = value.as<double>()) {
      spec::JsonWriter json;
      json.number(*number);
      return literal(json.text());
    }
    return value.is_null() ? std::optional<std::string>("\"null\"") : std::nullopt;
  }

  const Json& root_;
  std::string prefix_;
  std::string quote_;
  std::string rules_{};
  std::size_t count_ = 0;
  std::map<std::string, std::string> references_{};
};

/// A keyword in a schema, or in those within it, that the rules do not keep to; nothing where there
/// is none. `named` schemas are those of a map of names.
std::optional<std::string> ignored_in(const Json& schema, bool named = false) {
  constexpr std::array<std::string_view, 16> kKept{"type",
                                                   "properties",
                                                   "required",
                                                   "items",
                                                   "enum",
                                                   "const",
                                                   "anyOf",
                                                   "oneOf",
                                                   "$ref",
                                                   "$defs",
                                                   "definitions",
                                                   "additionalProperties",
                                                   "title",
                                                   "description",
                                                   "default",
                                                   "examples"};
  if (const auto* list = schema.as<Json::Array>()) {
    for (const Json& one : *list) {
      if (std::optional<std::string> found = ignored_in(one)) {
        return found;
      }
    }
  }
  const auto* members = schema.as<Json::Object>();
  for (std::size_t i = 0; members != nullptr && i < members->size(); ++i) {
    const auto& [key, value] = (*members)[i];
    if (!named && std::ranges::find(kKept, key) == kKept.end()) {
      return key;
    }
    const bool names = key == "properties" || key == "$defs" || key == "definitions";
    const bool within = named || names || key == "items" || key == "anyOf" || key == "oneOf";
    if (std::optional<std::string> found =
            within ? ignored_in(value, names && !named) : std::nullopt) {
      return found;
    }
  }
  return std::nullopt;
}

/// Values of any schema.
std::string common_rules(const std::string& quote) {
  // No text is a special token; where the quote is none, strings cannot hold what it begins with.
  const bool special = quote.starts_with('<');
  return "any: string | number | boolean | \"null\" | object | array\n"
         "object: \"{\" (pair (\",\" pair)*)? \"}\"\n"
         "pair: KEY \":\" any\n"
         "array: \"[\" (any (\",\" any)*)? \"]\"\n"
         "boolean: \"true\" | \"false\"\n"
         "integer: /-?(0|[1-9][0-9]{0,17})/\n"
         "number: /-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?/\n"
         "KEY: /[A-Za-z_][A-Za-z0-9_.-]{0,63}/\n"
         "string: " +
         quote + " TEXT? " + quote + "\nTEXT: " + (special ? "/(?s:.)+/" : "/[^<]+/") + "\n";
}

bool may_be_called(const api::ToolUse& use, const api::Tool& tool) {
  return use.choice != api::ToolChoice::kNamed || tool.name == use.named;
}

}  // namespace

std::optional<std::string> gemma4_ignores(const api::ToolUse& use) {
  for (std::size_t i = 0; i < use.list.size(); ++i) {
    const api::Tool& tool = use.list[i];
    const Result<Json> schema = spec::parse_json(tool.parameters, "parameters");
    const std::optional<std::string> key =
        schema && may_be_called(use, tool) ? ignored_in(*schema) : std::nullopt;
    if (key) {
      return "tools[" + std::to_string(i) + "].function.parameters: \"" + *key +
             "\" is not enforced in calls as this model spells them";
    }
  }
  return std::nullopt;
}

std::string gemma4_rules(const api::ToolUse& use, const text::Tokenizer& tokenizer) {
  const std::string quote = marker(text::kGemma4Quote, tokenizer);
  std::string calls;
  std::string rules;
  for (std::size_t i = 0; i < use.list.size(); ++i) {
    const api::Tool& tool = use.list[i];
    if (!may_be_called(use, tool)) {
      continue;
    }
    const std::string number = std::to_string(i);
    const Result<Json> schema = spec::parse_json(tool.parameters, "parameters");
    const Json root = schema ? *schema : Json();
    SchemaRules made(root, "t" + number, quote);
    const std::string arguments = made.arguments();
    calls += (calls.empty() ? "one: call" : " | call") + number;
    rules += "call" + number + ": " + marker(text::kGemma4CallOpen, tokenizer) + " " +
             literal("call:" + tool.name) + " arguments" + number + " " +
             marker(text::kGemma4CallClose, tokenizer) + "\n";
    rules += "arguments" + number + ": " + arguments + "\n" + made.rules();
  }
  return calls + "\n" + rules + common_rules(quote);
}

}  // namespace heddle::gateway
