#include "config/reader.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "base/nearest.h"
#include "base/units.h"
#include "config/command_line.h"

namespace heddle::config {

namespace {

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

std::string_view kind_name(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "nothing";
    case Node::Kind::kScalar:
      return "a single value";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a map";
  }
  return "?";
}

}  // namespace

std::optional<double> parse_fraction(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 && number <= 1 ? std::optional(number) : std::nullopt;
}

Reader::Reader(const Node& node, std::string where, Diagnosis& diagnosis)
    : node_(node), where_(std::move(where)), diagnosis_(diagnosis) {}

std::string Reader::full_name(std::string_view key) const {
  std::string name = where_;
  if (!where_.empty() && !key.empty()) {
    name += '.';
  }
  name += key;
  return name;
}

std::string Reader::at(int line, std::string_view key, const std::string& text) const {
  return diagnosis_.origin + ", line " + std::to_string(line) + ": " + full_name(key) + ": " + text;
}

void Reader::problem(int line, std::string_view key, const std::string& text) {
  malformed_.emplace(key);
  diagnosis_.problems.push_back(at(line, key, text));
}

const Node* Reader::find(std::string_view key) {
  known_.emplace(key);
  const auto found = std::find_if(node_.children.begin(),
                                  node_.children.end(),
                                  [key](const Node& child) { return child.key == key; });
  return found == node_.children.end() || found->kind == Node::Kind::kNull ? nullptr : &*found;
}

const Node* Reader::find(std::string_view key, Node::Kind kind, std::string_view want) {
  const Node* node = find(key);
  if (node != nullptr && node->kind != kind) {
    problem(node->line, key, "is " + std::string(kind_name(*node)) + "; want " + std::string(want));
    return nullptr;
  }
  return node;
}

const Node* Reader::scalar(std::string_view key, std::string_view want) {
  return find(key, Node::Kind::kScalar, want);
}

template <class T>
void Reader::store(const Node& node, const Result<T>& parsed, T& value) {
  if (parsed) {
    value = *parsed;
  } else {
    problem(node.line, node.key, parsed.error().message);
  }
}

void Reader::flag(Key key, bool& value) {
  const Node* node = scalar(key.name, "true or false");
  if (node == nullptr) {
    return;
  }
  if (node->text != "true" && node->text != "false") {
    problem(node->line, key.name, "\"" + node->text + "\" is neither true nor false");
    return;
  }
  value = node->text == "true";
}

void Reader::integer(Key key, Range range, std::int64_t& value) {
  const Node* node = scalar(key.name, "a whole number");
  if (node == nullptr) {
    return;
  }
  const std::optional<std::int64_t> number = whole_number(node->text);
  if (!number || *number < range.least || *number > range.most) {
    std::string want =
        "\"" + node->text + "\" is not a whole number of at least " + std::to_string(range.least);
    if (range.most != INT64_MAX) {
      want += " and at most " + std::to_string(range.most);
    }
    problem(node->line, key.name, want);
    return;
  }
  value = *number;
}

void Reader::fraction(Key key, double& value) {
  const Node* node = scalar(key.name, "a number from 0 to 1");
  if (node == nullptr) {
    return;
  }
  const std::optional<double> number = parse_fraction(node->text);
  if (!number) {
    problem(
        node->line, key.name, "\"" + node->text + "\" is no number from 0 to 1; want such as 0.1");
    return;
  }
  value = *number;
}

void Reader::text(Key key, std::string& value) {
  const Node* node = scalar(key.name, "a string");
  if (node != nullptr) {
    value = node->text;
  }
}

void Reader::choice(Key key, const std::vector<std::string_view>& names, std::size_t& value) {
  const Node* node = scalar(key.name, "a word");
  if (node == nullptr) {
    return;
  }
  const auto found = std::find(names.begin(), names.end(), node->text);
  if (found != names.end()) {
    value = static_cast<std::size_t>(found - names.begin());
    return;
  }
  std::string want = "\"" + node->text + "\" is not one of";
  for (const std::string_view name : names) {
    want += name == names.front() ? " " : ", ";
    want += name;
  }
  problem(node->line, key.name, want);
}

void Reader::bytes(Key key, std::uint64_t& value) {
  const Node* node = scalar(key.name, "a size such as 64MiB");
  if (node != nullptr) {
    store(*node, parse_bytes(node->text), value);
  }
}

void Reader::rate(Key key, std::uint64_t& value) {
  const Node* node = scalar(key.name, "a rate such as 50MB/s");
  if (node != nullptr) {
    store(*node, parse_rate(node->text), value);
  }
}

void Reader::duration(Key key, Duration& value) {
  const Node* node = scalar(key.name, "a time such as 20ms");
  if (node != nullptr) {
    store(*node, parse_duration(node->text), value);
  }
}

void Reader::seconds(Key key, Duration& value) {
  const Node* node = scalar(key.name, "a time such as 5m, or a number of seconds");
  if (node == nullptr) {
    return;
  }
  const std::optional<std::int64_t> plain = whole_number(node->text);
  if (plain == -1) {
    return;
  }
  store(*node, parse_duration(plain ? node->text + "s" : node->text), value);
}

void Reader::path(Key key, std::string& value) {
  const Node* node = scalar(key.name, "a file name");
  if (node != nullptr) {
    value = (std::filesystem::path(diagnosis_.directory) / node->text).lexically_normal().string();
  }
}

void Reader::texts(Key key, std::vector<std::string>& value) {
  const Node* node = find(key.name);
  if (node == nullptr) {
    return;
  }
  value.clear();
  if (node->kind == Node::Kind::kScalar) {
    value.push_back(node->text);
    return;
  }
  for (const Node& item : node->children) {
    if (node->kind != Node::Kind::kList || item.kind != Node::Kind::kScalar) {
      problem(item.line, key.name, "want a string or a list of strings");
      return;
    }
    value.push_back(item.text);
  }
}

void Reader::entries(Key key,
                     const std::function<void(const std::string& text)>& plain,
                     const Declare& declare) {
  const Node* node = find(key.name);
  if (node == nullptr) {
    return;
  }
  if (node->kind == Node::Kind::kScalar) {
    plain(node->text);
    return;
  }
  if (node->kind != Node::Kind::kList) {
    problem(node->line, key.name, "is a map; want a string, or a list of strings and maps");
    return;
  }
  for (std::size_t i = 0; i < node->children.size(); ++i) {
    const Node& item = node->children[i];
    const std::string where = full_name(key.name) + "[" + std::to_string(i) + "]";
    if (item.kind == Node::Kind::kMap) {
      read_section(item, where, declare);
    } else if (item.kind == Node::Kind::kScalar) {
      plain(item.text);
    } else {
      problem(item.line,
              key.name,
              where + " is " + std::string(kind_name(item)) + "; want a string or a map");
    }
  }
}

void Reader::command(Key key, std::vector<std::string>& value) {
  const Node* node = find(key.name);
  if (node == nullptr || node->kind != Node::Kind::kScalar) {
    texts(key, value);
    return;
  }
  store(*node, split_command(node->text), value);
}

void Reader::named_texts(Key key, std::vector<std::pair<std::string, std::string>>& value) {
  const Node* node = find(key.name, Node::Kind::kMap, "a map");
  if (node == nullptr) {
    return;
  }
  value.clear();
  for (const Node& child : node->children) {
    if (child.kind != Node::Kind::kScalar) {
      problem(child.line,
              key.name,
              child.key + " is " + std::string(kind_name(child)) + "; want a string");
      return;
    }
    value.emplace_back(child.key, child.text);
  }
}

void Reader::values(Key key, std::vector<std::pair<std::string, std::string>>& value) {
  const Node* node = find(key.name, Node::Kind::kMap, "a map");
  if (node == nullptr) {
    return;
  }
  value.clear();
  for (const Node& child : node->children) {
    value.emplace_back(child.key, to_json(child));
  }
}

void Reader::read_section(const Node& node, const std::string& where, const Declare& declare) {
  Reader inner(node, where, diagnosis_);
  declare(inner);
  inner.finish();
}

void Reader::section(Key key, const Declare& declare) {
  const Node* node = find(key.name, Node::Kind::kMap, "a map");
  if (node != nullptr) {
    read_section(*node, full_name(key.name), declare);
  }
}

void Reader::sections(Key key, const Declare& declare) {
  const Node* node = find(key.name, Node::Kind::kList, "a list of maps");
  if (node == nullptr) {
    return;
  }
  for (std::size_t i = 0; i < node->children.size(); ++i) {
    const std::string where = full_name(key.name) + "[" + std::to_string(i) + "]";
    if (node->children[i].kind != Node::Kind::kMap) {
      problem(node->children[i].line, key.name, where + " is not a map");
      continue;
    }
    read_section(node->children[i], where, declare);
  }
}

void Reader::named_sections(Key key, const DeclareNamed& declare) {
  const Node* node = find(key.name, Node::Kind::kMap, "a map from names to maps");
  if (node == nullptr) {
    return;
  }
  for (const Node& child : node->children) {
    const std::string where = full_name(key.name) + "." + child.key;
    if (child.kind != Node::Kind::kMap) {
      problem(
          child.line, key.name, where + " is " + std::string(kind_name(child)) + "; want a map");
      continue;
    }
    read_section(child, where, [&](Fields& fields) { declare(child.key, fields); });
  }
}

void Reader::require(std::string_view key, std::string_view why) {
  if (!has(key)) {
    problem(node_.line, key, "is missing: " + std::string(why));
  }
}

void Reader::require_one(const std::vector<std::string_view>& keys, std::string_view why) {
  if (std::none_of(keys.begin(), keys.end(), [&](std::string_view key) { return has(key); })) {
    problem(node_.line, keys.front(), "is missing: " + std::string(why));
  }
}

void Reader::ignore(const std::vector<std::string_view>& keys, std::string_view why) {
  for (const std::string_view key : keys) {
    known_.emplace(key);
    if (has(key)) {
      warn(key, std::string(why));
    }
  }
}

bool Reader::has(std::string_view key) const {
  return std::any_of(node_.children.begin(), node_.children.end(), [key](const Node& child) {
    return child.key == key;
  });
}

int Reader::line_of(std::string_view key) const {
  for (const Node& child : node_.children) {
    if (child.key == key) {
      return child.line;
    }
  }
  return node_.line;
}

void Reader::reject(std::string_view key, const std::string& text) {
  if (!malformed_.contains(key)) {  // Else its value was never taken over, and that was said.
    diagnosis_.problems.push_back(at(line_of(key), key, text));
  }
}

void Reader::warn(std::string_view key, const std::string& warning) {
  diagnosis_.warnings.push_back(at(line_of(key), key, warning));
}

void Reader::finish() {
  for (const Node& child : node_.children) {
    if (known_.contains(child.key)) {
      continue;
    }
    const std::string meant = nearest(child.key, {known_.begin(), known_.end()});
    std::string text = "is not a known key";
    if (!meant.empty()) {
      text += "; did you mean \"" + meant + "\"?";
    } else {
      text += "; known here:";
      for (const std::string& known : known_) {
        text += " " + known;
      }
    }
    problem(child.line, child.key, text);
  }
}

}  // namespace heddle::config
