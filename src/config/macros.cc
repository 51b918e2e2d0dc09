#include "config/macros.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "config/command_line.h"
#include "config/config.h"
#include "config/upstream.h"

namespace heddle::config {

namespace {

// Macros that name macros can make a short document very large, or endless.
constexpr int kNestingMax = 16;
constexpr int kReplacementsMax = 1000;
constexpr std::size_t kTextMax = 256U << 10U;
constexpr std::size_t kNameMax = 63;
constexpr std::uint16_t kStartPort = 5800;
constexpr std::uint16_t kPortMax = 65535;
constexpr std::uint16_t kListenPort = 8080;
constexpr std::string_view kPort = "PORT";
constexpr std::string_view kModelId = "MODEL_ID";
constexpr std::string_view kPid = "PID";

struct Value {
  std::string text{};
  bool quoted = false;
};
using Macros = std::map<std::string, Value, std::less<>>;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

Node* child_of(Node& map, std::string_view key) {
  const auto found = std::find_if(
      map.children.begin(), map.children.end(), [key](const Node& n) { return n.key == key; });
  return found == map.children.end() ? nullptr : &*found;
}

/// Whether `text` occurs anywhere in `node`.
bool mentions(const Node& node, std::string_view text) {
  return node.text.find(text) != std::string::npos ||
         std::any_of(node.children.begin(), node.children.end(), [text](const Node& child) {
           return mentions(child, text);
         });
}

enum class Unknown : std::uint8_t { kProblem, kStays };

/// Replaces macros of `inner` or else of `outer`; `unknown` says what becomes of others.
class Expander {
 public:
  Expander(const Macros& inner, const Macros& outer, Unknown unknown, Diagnosis& diagnosis)
      : inner_(inner), outer_(outer), unknown_(unknown), diagnosis_(diagnosis) {}

  /// All scalars of `node` but for those under a key `macros` of itself.
  void expand_section(Node& node) {
    for (Node& child : node.children) {
      if (child.key == "cmd" || child.key == "cmdStop") {
        child.text = without_comments(child.text);
      }
      if (child.key != "macros") {
        expand(child);
      }
    }
  }

  void expand(Node& node) {
    if (node.kind == Node::Kind::kScalar) {
      expand_scalar(node);
    }
    for (Node& child : node.children) {
      expand(child);
    }
    if (node.key == "setParamsByID") {
      for (Node& child : node.children) {
        Node name{.kind = Node::Kind::kScalar, .line = child.line, .text = child.key};
        expand_scalar(name);
        child.key = name.text;
      }
    }
  }

 private:
  [[nodiscard]] const Value* find(std::string_view name) const {
    for (const Macros* macros : {&inner_, &outer_}) {
      if (const auto found = macros->find(name); found != macros->end()) {
        return &found->second;
      }
    }
    return nullptr;
  }

  void expand_scalar(Node& node) {
    if (node.text.find("${") == std::string::npos) {
      return;
    }
    // A macro that is all of the value keeps its type.
    const std::string_view name = name_at(node.text, 0);
    const Value* whole = find(name);
    if (whole != nullptr) {
      node.quoted = node.text.size() != name.size() + 3 || whole->quoted;
    }
    int budget = kReplacementsMax;
    std::string text;
    if (const auto trouble = append(node.text, 0, budget, text)) {
      diagnosis_.problems.push_back(diagnosis_.origin + ", line " + std::to_string(node.line) +
                                    ": " + *trouble);
      return;
    }
    node.text = std::move(text);
  }

  /// The name in a "${name}" that starts at `at`; empty when none does.
  static std::string_view name_at(std::string_view text, std::size_t at) {
    if (text.substr(at, 2) != "${") {
      return {};
    }
    const std::string_view rest = text.substr(at + 2);
    const std::string_view name = rest.substr(0, std::min(rest.find('}'), rest.size()));
    return name.size() < rest.size() && is_name(name) ? name : std::string_view{};
  }

  /// What is wrong, if something is.
  std::optional<std::string> append(std::string_view text,
                                    int depth,
                                    int& budget,
                                    std::string& to) {
    if (depth > kNestingMax) {
      return "macros name each other more than " + std::to_string(kNestingMax) + " deep";
    }
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view name = name_at(text, at);
      const Value* macro = find(name);
      const bool later = name == kPid || name == kPort || unknown_ == Unknown::kStays;
      if (name.empty() || (macro == nullptr && later)) {
        to += text[at++];
        continue;
      }
      if (macro == nullptr) {
        return "the macro ${" + std::string(name) +
               "} is not defined; define it under macros, or " + "write ${env." +
               std::string(name) + "} for a variable of the environment";
      }
      if (--budget < 0 || to.size() > kTextMax) {
        return "macros make this value longer than is reasonable";
      }
      if (auto trouble = append(macro->text, depth + 1, budget, to)) {
        return trouble;
      }
      at += name.size() + 3;
    }
    return std::nullopt;
  }

  const Macros& inner_;
  const Macros& outer_;
  Unknown unknown_;
  Diagnosis& diagnosis_;
};

/// The macros under a section's key `macros`.
Macros macros_in(Node& section, const std::string& where, Diagnosis& diagnosis) {
  Macros macros;
  const Node* own = child_of(section, "macros");
  if (own == nullptr) {
    return macros;
  }
  for (const Node& macro : own->children) {
    const auto reject = [&](const std::string& why) {
      diagnosis.problems.push_back(diagnosis.origin + ", line " + std::to_string(macro.line) +
                                   ": " + where + "macros." + macro.key + ": " + why);
    };
    if (!is_name(macro.key)) {
      reject("is no name of a macro; want letters, digits, '_' and '-', 63 at most");
    } else if (macro.key == kPort || macro.key == kModelId || macro.key == kPid) {
      reject("is a name that has its own meaning; choose another");
    } else if (macro.kind == Node::Kind::kList || macro.kind == Node::Kind::kMap) {
      reject("is no single value");
    } else {
      macros[macro.key] = {.text = macro.text, .quoted = macro.quoted};
    }
  }
  return macros;
}

/// The port that a scalar's URL or address names, if it does.
void note_port(const Node& node, std::set<std::uint16_t>& taken) {
  if (const auto url = parse_upstream(node.text)) {
    taken.insert(url->port);
  } else if (const auto listen = parse_listen(node.text)) {
    taken.insert(listen->port);
  }
}

/// Ports that are spoken for: of heddle itself, and of models that name theirs.
std::set<std::uint16_t> taken_ports(Node& root) {
  std::set<std::uint16_t> taken;
  Node* listen = child_of(root, "listen");
  if (listen == nullptr) {
    taken.insert(kListenPort);
  } else {
    note_port(*listen, taken);
    for (const Node& address : listen->children) {
      note_port(address, taken);
    }
  }
  if (Node* models = child_of(root, "models")) {
    for (Node& model : models->children) {
      if (const Node* proxy = child_of(model, "proxy")) {
        note_port(*proxy, taken);
      }
    }
  }
  return taken;
}

/// Whether a model has to be told a port.
bool wants_port(Node& model) {
  if (mentions(model, "${PORT}")) {
    return true;
  }
  const bool ours = child_of(model, "cmd") != nullptr || child_of(model, "container") != nullptr ||
                    child_of(model, "engine") != nullptr;
  const Node* proxy = child_of(model, "proxy");
  return ours && (proxy == nullptr || proxy->text.empty());
}

std::uint16_t start_port(Node& root, Diagnosis& diagnosis) {
  const Node* node = child_of(root, "startPort");
  if (node == nullptr || node->kind == Node::Kind::kNull) {
    return kStartPort;
  }
  const auto parsed = parse_listen(node->text);
  if (parsed && parsed->port > 0 && node->text.find(':') == std::string::npos) {
    return parsed->port;
  }
  diagnosis.problems.push_back(diagnosis.origin + ", line " + std::to_string(node->line) +
                               ": startPort: \"" + node->text + "\" is not a port from 1 to 65535");
  return kStartPort;
}

}  // namespace

Ports expand_macros(Node& root, Diagnosis& diagnosis) {
  const Macros none;
  const Macros global = macros_in(root, "", diagnosis);
  for (Node& child : root.children) {
    if (child.key != "macros" && child.key != "models") {
      Expander(none, global, Unknown::kProblem, diagnosis).expand(child);
    }
  }
  Ports ports;
  Node* models = child_of(root, "models");
  if (models == nullptr) {
    return ports;
  }
  std::map<std::string, Node*> by_id;
  for (Node& model : models->children) {
    Macros own = macros_in(model, "models." + model.key + ".", diagnosis);
    own[std::string(kModelId)] = {.text = model.key, .quoted = true};
    Expander(own, global, Unknown::kProblem, diagnosis).expand_section(model);
    by_id.emplace(model.key, &model);
  }
  std::set<std::uint16_t> taken = taken_ports(root);
  std::uint32_t next = start_port(root, diagnosis);
  for (const auto& [id, model] : by_id) {
    if (!wants_port(*model)) {
      continue;
    }
    while (taken.contains(static_cast<std::uint16_t>(next)) && next <= kPortMax) {
      ++next;
    }
    if (next > kPortMax) {
      diagnosis.problems.push_back(diagnosis.origin + ": models." + id +
                                   ": no port is left from startPort to 65535");
      break;
    }
    ports[id] = static_cast<std::uint16_t>(next);
    const Macros own{{std::string(kPort), {.text = std::to_string(next++)}}};
    Expander(own, none, Unknown::kStays, diagnosis).expand_section(*model);
  }
  return ports;
}

}  // namespace heddle::config
