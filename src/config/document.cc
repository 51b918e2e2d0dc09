#include "config/document.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "spec/json_writer.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

namespace heddle::config {

namespace {

// Aliases can make a short document very large, or endless.
constexpr int kDepthMax = 32;
constexpr int kNodesMax = 100'000;
constexpr std::string_view kOpen = "${env.";

constexpr std::string_view kMerge = "<<";

/// Whether a key of the outermost map only holds what anchors name, as files of llama-swap and of
/// compose have such: no key of a configuration is called so.
bool is_holder(std::string_view key) {
  return key.starts_with("x-") || key.starts_with('.') || key == "defs" || key == "anchors";
}

Error at_line(const std::string& origin, int line, const std::string& problem) {
  return {.code = Code::kInvalidArgument,
          .message = origin + ", line " + std::to_string(line) + ": " + problem};
}

/// Turns yaml-cpp's tree into ours.
class Converter {
 public:
  Converter(const std::string& origin, const Environment& environment)
      : origin_(origin), environment_(environment) {}

  Result<Node> convert(const YAML::Node& source, int depth) {
    Node node{.line = source.Mark().line + 1};
    if (depth > kDepthMax || ++count_ > kNodesMax) {
      return at_line(origin_,
                     node.line,
                     "the document is nested deeper than " + std::to_string(kDepthMax) +
                         " levels or has more than " + std::to_string(kNodesMax) + " values");
    }
    if (source.IsScalar()) {
      return scalar(source, std::move(node));
    }
    if (source.IsSequence()) {
      node.kind = Node::Kind::kList;
      for (const YAML::Node& item : source) {
        Result<Node> child = convert(item, depth + 1);
        if (!child) {
          return child;
        }
        node.children.push_back(std::move(child).value());
      }
    }
    if (source.IsMap()) {
      return map(source, std::move(node), depth);
    }
    return node;
  }

 private:
  Result<Node> scalar(const YAML::Node& source, Node node) {
    node.kind = Node::Kind::kScalar;
    node.quoted = source.Tag() == "!";
    std::string_view rest = source.Scalar();
    for (std::size_t open = rest.find(kOpen); open != std::string_view::npos;
         open = rest.find(kOpen)) {
      const std::size_t close = rest.find('}', open);
      if (close == std::string_view::npos) {
        return at_line(origin_, node.line, "\"${env.\" without its closing \"}\"");
      }
      const std::string name(rest.substr(open + kOpen.size(), close - open - kOpen.size()));
      const std::optional<std::string> value = environment_(name);
      if (!value) {
        return at_line(origin_,
                       node.line,
                       "${env." + name + "}: the environment variable " + name + " is not set");
      }
      node.text += rest.substr(0, open);
      node.text += *value;
      rest.remove_prefix(close + 1);
    }
    node.text += rest;
    return node;
  }

  Result<Node> map(const YAML::Node& source, Node node, int depth) {
    node.kind = Node::Kind::kMap;
    std::set<std::string> seen;
    std::vector<YAML::Node> merged;
    for (const auto& entry : source) {
      const YAML::Node& key = entry.first;
      const int line = key.Mark().line + 1;
      if (key.IsScalar() && key.Scalar() == kMerge && key.Tag() != "!") {
        if (!entry.second.IsMap() && !entry.second.IsSequence()) {
          return at_line(origin_, line, "\"<<\" wants a map such as *base, or a list of them");
        }
        merged.push_back(entry.second);
        continue;
      }
      if (!key.IsScalar()) {
        return at_line(origin_, line, "a key must be a plain word");
      }
      if (!seen.insert(key.Scalar()).second) {
        return at_line(origin_, line, "the key \"" + key.Scalar() + "\" occurs twice");
      }
      if (depth == 0 && is_holder(key.Scalar())) {
        continue;  // What anchors in it stand for is read where they are used.
      }
      Result<Node> child = convert(entry.second, depth + 1);
      if (!child) {
        return child;
      }
      child->key = key.Scalar();
      child->line = line;
      node.children.push_back(std::move(child).value());
    }
    for (const YAML::Node& source_of_more : merged) {
      Result<void> added = merge(source_of_more, node, depth);
      if (!added) {
        return added.error();
      }
    }
    return node;
  }

  /// Adds what `node` does not have itself (YAML 1.1's merge key): of several maps the first holds.
  Result<void> merge(const YAML::Node& source, Node& node, int depth) {
    Result<Node> more = convert(source, depth + 1);
    if (!more) {
      return more.error();
    }
    std::vector<Node> maps;
    if (more->kind == Node::Kind::kMap) {
      maps.push_back(std::move(*more));
    } else {
      maps = std::move(more->children);
    }
    for (Node& map : maps) {
      if (map.kind != Node::Kind::kMap) {
        return at_line(origin_, map.line, "\"<<\" wants a map such as *base, or a list of them");
      }
      for (Node& child : map.children) {
        const auto same = [&child](const Node& own) { return own.key == child.key; };
        if (std::none_of(node.children.begin(), node.children.end(), same)) {
          node.children.push_back(std::move(child));
        }
      }
    }
    return {};
  }

  const std::string& origin_;
  const Environment& environment_;
  int count_ = 0;
};

/// Looks at nothing of a document but where it starts.
class StartOfDocument final : public YAML::EventHandler {
 public:
  [[nodiscard]] int line() const { return line_; }

  void OnDocumentStart(const YAML::Mark& mark) override { line_ = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&,
                const std::string&,
                YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&,
                       const std::string&,
                       YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&,
                  const std::string&,
                  YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int line_ = 0;
};

/// The line where something follows the first document; 0 when nothing does. (YAML::LoadAll would
/// tell as well, but never returns from some texts, such as ",x": yaml-cpp 0.7.)
int line_of_second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  StartOfDocument start;
  const bool second = parser.HandleNextDocument(start) && parser.HandleNextDocument(start);
  return second ? start.line() : 0;
}

/// What from_chars takes for a number and YAML does as well: no "inf", no "nan".
template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  const bool digits = text.find_first_of("0123456789") != std::string_view::npos;
  return whole && digits ? std::optional(value) : std::nullopt;
}

void write_scalar(spec::JsonWriter& json, const Node& node) {
  if (node.quoted) {
    json.string(node.text);
  } else if (node.text == "true" || node.text == "false") {
    json.boolean(node.text == "true");
  } else if (node.text.empty() || node.text == "null" || node.text == "~") {
    json.null();
  } else if (const auto whole = number<std::int64_t>(node.text)) {
    json.integer(*whole);
  } else if (const auto real = number<double>(node.text)) {
    json.number(*real);
  } else {
    json.string(node.text);
  }
}

void write(spec::JsonWriter& json, const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      json.null();
      return;
    case Node::Kind::kScalar:
      write_scalar(json, node);
      return;
    case Node::Kind::kList:
      json.begin_array();
      for (const Node& child : node.children) {
        write(json, child);
      }
      json.end_array();
      return;
    case Node::Kind::kMap:
      json.begin_object();
      for (const Node& child : node.children) {
        json.key(child.key);
        write(json, child);
      }
      json.end_object();
      return;
  }
}

}  // namespace

std::string to_json(const Node& node) {
  spec::JsonWriter json;
  write(json, node);
  return std::move(json).take();
}

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): nobody sets any.
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<Node> parse_document(std::string_view text,
                            const std::string& origin,
                            const Environment& environment) {
  try {
    const std::string copy(text);
    const YAML::Node document = YAML::Load(copy);
    if (const int line = line_of_second_document(copy); line > 0) {
      return at_line(
          origin, line, "what follows is no part of the document before; want one document");
    }
    return Converter(origin, environment).convert(document, 0);
  } catch (const YAML::Exception& failure) {
    return at_line(origin, failure.mark.line + 1, failure.msg);
  }
}

}  // namespace heddle::config
