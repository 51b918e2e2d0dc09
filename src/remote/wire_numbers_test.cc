// docs/contracts/wire_numbers.txt holds every number that a message or a field has, or ever had.

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_places.h"
#include "core/agent_fields.h"
#include "core/engine_fields.h"
#include "core/worker_fields.h"
#include "remote/cache_fields.h"
#include "remote/edge_fields.h"
#include "remote/remote_fields.h"
#include "remote/stream_fields.h"
#include "rpc/greet_fields.h"
#include "rpc/link_fields.h"

namespace heddle::remote {
namespace {

using Kind = Type::Kind;

std::string text_of(const Type& type) {
  const std::string bits = " " + std::to_string(8 * type.bytes);
  switch (type.kind) {
    case Kind::kBool:
      return "bool";
    case Kind::kUnsigned:
      return "unsigned" + bits;
    case Kind::kSigned:
      return "signed" + bits;
    case Kind::kFloat:
      return "float" + bits;
    case Kind::kText:
      return "text";
    case Kind::kOptional:
      return "optional " + text_of(*type.element);
    case Kind::kList:
      return (type.list.fixed > 0 ? "array of " : "list of ") + text_of(*type.element);
    case Kind::kMap:
      return "map, " + text_of(*type.element);
    case Kind::kVariant:
      return "a message";
    default:
      return type.pair ? "pair of " + text_of(*type.fields[0].type) + " and " +
                             text_of(*type.fields[1].type)
                       : std::string(type.name);
  }
}

/// Whether it says something by default, so that it is never left out.
bool always_said(const Field& field, const Type& type) {
  const auto* const bytes = static_cast<const std::byte*>(type.initial) + field.offset;
  if (field.type->kind == Kind::kList) {
    return field.type->list.fixed == 0 && field.type->list.size(bytes) > 0;
  }
  return field.type->number_like() && std::any_of(bytes, bytes + field.type->bytes, [](auto byte) {
           return byte != std::byte{};
         });
}

/// A line for each message, field and enumerator, by what must never have another meaning: "message
/// 3", "JoinGroup 2", "EvictMode 0".
class Lines {
 public:
  void add(const Type& type) {
    if (type.kind == Kind::kEnum) {
      for (std::size_t i = 0; i < type.values.size(); ++i) {
        line(std::string(type.name) + " " + std::to_string(i), std::string(type.values[i]));
      }
    }
    if (type.element != nullptr) {
      add(*type.element);
    }
    for (const Type* alternative : type.alternatives) {
      add(*alternative);
    }
    if (type.number > 0) {
      line("message " + std::to_string(type.number), std::string(type.name));
    }
    for (const Field& field : type.fields) {
      if (!type.pair) {
        line(std::string(type.name) + " " + std::to_string(field.number),
             std::string(field.name) + ": " + text_of(*field.type) +
                 (always_said(field, type) ? ", always" : ""));
      }
      add(*field.type);
    }
  }

  [[nodiscard]] const std::map<std::string, std::string>& all() const { return lines_; }

 private:
  void line(const std::string& key, const std::string& means) {
    const auto [at, added] = lines_.emplace(key, means);
    EXPECT_EQ(at->second, means) << key << " is there twice";
  }

  std::map<std::string, std::string> lines_{};
};

Lines current() {
  Lines lines;
  lines.add(type_of<rpc::ToWorker>());
  lines.add(type_of<rpc::ToServe>());
  lines.add(type_of<rpc::ToStage>());
  lines.add(type_of<rpc::HostMessage>());
  lines.add(type_of<ToHost>());
  lines.add(type_of<FromHost>());
  lines.add(type_of<GatewayToHost>());
  lines.add(type_of<HostToGateway>());
  lines.add(type_of<GatewayToManager>());
  lines.add(type_of<ManagerToGateway>());
  lines.add(type_of<ToEngines>());
  lines.add(type_of<FromEngines>());
  lines.add(type_of<ToEdge>());
  lines.add(type_of<FromEdge>());
  lines.add(type_of<ToCache>());
  lines.add(type_of<FromCache>());
  lines.add(type_of<core::ManagerEvent>());
  lines.add(type_of<core::ManagerCommand>());
  lines.add(type_of<core::AgentEvent>());
  lines.add(type_of<core::AgentCommand>());
  lines.add(type_of<core::WorkerEvent>());
  lines.add(type_of<core::WorkerCommand>());
  lines.add(type_of<core::EnginesEvent>());
  lines.add(type_of<core::EnginesCommand>());
  return lines;
}

/// "JoinGroup 2" of "JoinGroup 2 rank: signed 64".
std::string key_of(const std::string& line) {
  return line.substr(0, line.find(' ', line.find(' ') + 1));
}

TEST(WireNumbers, AreThoseOnRecord) {
  std::set<std::string> recorded;
  std::set<std::string> gone;
  std::ifstream file(places::source("docs/contracts/wire_numbers.txt"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("gone ")) {
      gone.insert(key_of(line.substr(5)));
    } else if (!line.empty() && !line.starts_with('#')) {
      recorded.insert(line);
    }
  }
  const Lines lines = current();
  std::string missing;
  for (const auto& [key, means] : lines.all()) {
    EXPECT_FALSE(gone.contains(key)) << key << " had another meaning once: take a new number";
    missing += recorded.erase(key + " " + means) == 0 ? key + " " + means + "\n" : "";
  }
  EXPECT_EQ(missing, "") << "add these lines to docs/contracts/wire_numbers.txt, beside their like";
  for (const std::string& line : recorded) {
    ADD_FAILURE() << "on record, but not so any more: " << line
                  << "\nA number keeps its meaning and its type. Where a field or a message is "
                     "removed, write \"gone \" before its line.";
  }
}

}  // namespace
}  // namespace heddle::remote
