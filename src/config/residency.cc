#include "config/residency.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace heddle::config {

namespace {

constexpr int kDepthMax = 64;

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

/// Somebody else runs it: it holds nothing here, and nothing is evicted for it.
bool is_elsewhere(const EngineConfig& engine) {
  return engine.command.empty() && engine.container.image.empty();
}

/// Whether the device is one of the engine's.
bool is_on(const EngineConfig& engine, const std::string& device) {
  return engine.device == device || contains(engine.further_devices, device);
}

/// Takes out members that are no models, and says so.
void check_members(Config& config, Diagnosis& diagnosis) {
  std::set<std::string> ids;
  for (const ModelConfig& model : config.models) {
    ids.insert(model.id);
  }
  std::map<std::string, std::string> group_of;
  for (GroupConfig& group : config.groups) {
    const std::string where = diagnosis.origin + ": groups." + group.name + ".members: \"";
    std::erase_if(group.members, [&](const std::string& member) {
      const bool unknown = !ids.contains(member);
      if (unknown) {
        diagnosis.warnings.push_back(where + member + "\" is no model; it is left out");
      }
      return unknown;
    });
    for (const std::string& member : group.members) {
      const auto [first, fresh] = group_of.emplace(member, group.name);
      if (!fresh) {
        diagnosis.problems.push_back(where + member + "\" is in the group " + first->second +
                                     " already");
      }
    }
  }
}

/// The groups of engines that nothing else is known of, one for each device.
void add_default_groups(Config& config) {
  std::map<std::string, GroupConfig> defaults;
  for (const ModelConfig& model : config.models) {
    const bool grouped =
        std::any_of(config.groups.begin(), config.groups.end(), [&](const GroupConfig& group) {
          return contains(group.members, model.id);
        });
    if (model.engine && model.engine->memory == 0 && !is_elsewhere(*model.engine) && !grouped) {
      defaults[model.engine->device].members.push_back(model.id);
    }
  }
  for (auto& [device, group] : defaults) {
    group.name = defaults.size() == 1 ? "(default)" : "(default on " + device + ")";
    config.groups.push_back(std::move(group));
  }
}

/// What an expression allows to run together.
struct Allowed {
  std::set<std::string> models{};
  std::set<std::pair<std::string, std::string>> pairs{};  ///< In both orders.
};

void unite(Allowed& into, const Allowed& other) {
  into.models.insert(other.models.begin(), other.models.end());
  into.pairs.insert(other.pairs.begin(), other.pairs.end());
}

/// Reads the expressions of a matrix. Which pairs share a set is found without writing the sets
/// out: of `a & b` those of either side, and each of one side with each of the other; of `a | b`
/// those of either side.
class MatrixReader {
 public:
  MatrixReader(const Matrix& matrix, const Config& config) {
    for (const ModelConfig& model : config.models) {
      ids_.emplace(model.id, model.id);
    }
    for (const auto& [name, id] : matrix.vars) {
      ids_.insert_or_assign(name, id);
    }
    for (const auto& [name, text] : matrix.sets) {
      sets_.emplace(name, text);
    }
  }

  /// Empty trouble: all is well.
  Allowed read(const std::string& set, std::string& trouble) {
    Allowed allowed = set_named(set);
    trouble = trouble_;
    return allowed;
  }

 private:
  Allowed set_named(const std::string& name) {
    if (const auto known = known_.find(name); known != known_.end()) {
      return known->second;
    }
    const auto found = sets_.find(name);
    if (found == sets_.end()) {
      return fail("+" + name + " is no set");
    }
    if (++depth_ > kDepthMax) {
      return fail("sets name each other, or are nested more than " + std::to_string(kDepthMax) +
                  " deep");
    }
    const std::string_view outer = std::exchange(rest_, found->second);
    Allowed allowed = either();
    skip_blanks();
    if (!rest_.empty() && trouble_.empty()) {
      allowed = fail("\"" + std::string(rest_) + "\" is not expected there");
    }
    rest_ = outer;
    --depth_;
    known_.emplace(name, allowed);
    return allowed;
  }

  Allowed either() {
    Allowed allowed = both();
    while (take('|')) {
      unite(allowed, both());
    }
    return allowed;
  }

  Allowed both() {
    Allowed allowed = one();
    while (take('&')) {
      const Allowed other = one();
      for (const std::string& a : allowed.models) {
        for (const std::string& b : other.models) {
          allowed.pairs.emplace(a, b);
          allowed.pairs.emplace(b, a);
        }
      }
      unite(allowed, other);
    }
    return allowed;
  }

  Allowed one() {
    if (!trouble_.empty()) {
      return {};
    }
    if (take('(')) {
      if (++depth_ > kDepthMax) {
        return fail("is nested more than " + std::to_string(kDepthMax) + " deep");
      }
      Allowed inner = either();
      --depth_;
      return take(')') ? inner : fail("a parenthesis is not closed");
    }
    const bool reference = take('+');
    const std::string name = word();
    if (name.empty()) {
      return fail("a model or a set is missing");
    }
    if (reference) {
      return set_named(name);
    }
    const auto id = ids_.find(name);
    if (id == ids_.end()) {
      return fail("\"" + name + "\" is neither a model nor one of vars");
    }
    return {.models = {id->second}};
  }

  Allowed fail(std::string trouble) {
    if (trouble_.empty()) {
      trouble_ = std::move(trouble);
    }
    return {};
  }

  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }

  bool take(char symbol) {
    skip_blanks();
    const bool there = trouble_.empty() && rest_.starts_with(symbol);
    rest_.remove_prefix(there ? 1 : 0);
    return there;
  }

  /// Ids have more characters than llama-swap's expressions take; we take what is no operator.
  std::string word() {
    skip_blanks();
    const std::string_view name = rest_.substr(0, rest_.find_first_of("&|()+ \t\r\n"));
    rest_.remove_prefix(name.size());
    return std::string(name);
  }

  std::map<std::string, std::string> ids_{};  ///< By id or variable.
  std::map<std::string, std::string> sets_{};
  std::map<std::string, Allowed> known_{};
  std::string_view rest_{};
  std::string trouble_{};
  int depth_ = 0;
};

}  // namespace

void resolve_groups(Config& config, Diagnosis& diagnosis) {
  check_members(config, diagnosis);
  const std::size_t named = config.groups.size();
  add_default_groups(config);
  std::map<std::string, const GroupConfig*> group_of;
  for (const GroupConfig& group : config.groups) {
    for (const std::string& member : group.members) {
      group_of.emplace(member, &group);
    }
  }
  const auto sent_away =
      [&](const ModelConfig& by, const GroupConfig& group, const ModelConfig& model) {
        const auto found = group_of.find(model.id);
        const GroupConfig* theirs = found == group_of.end() ? nullptr : found->second;
        if (theirs == &group && group.swap) {
          return true;
        }
        if (theirs == &group || !group.exclusive || (theirs != nullptr && theirs->persistent)) {
          return false;
        }
        // Who is in no group of the file may need all of its device, but nothing of others.
        const bool by_default = &group >= config.groups.data() + named;
        return by_default ? model.engine && !is_elsewhere(*model.engine) &&
                                is_on(*model.engine, by.engine->device)
                          : theirs != nullptr;
      };
  for (ModelConfig& model : config.models) {
    const auto own = group_of.find(model.id);
    if (own == group_of.end()) {
      continue;
    }
    for (const ModelConfig& other : config.models) {
      if (other.id != model.id && sent_away(model, *own->second, other)) {
        model.displaces.push_back(other.id);
      }
    }
    std::sort(model.displaces.begin(), model.displaces.end());
  }
}

void resolve_matrix(const Matrix& matrix, Config& config, Diagnosis& diagnosis) {
  MatrixReader reader(matrix, config);
  Allowed allowed;
  for (const auto& [name, text] : matrix.sets) {
    std::string trouble;
    unite(allowed, reader.read(name, trouble));
    if (!trouble.empty()) {
      diagnosis.problems.push_back(diagnosis.origin + ": matrix.sets." + name + ": \"" + text +
                                   "\": " + trouble);
      return;
    }
  }
  const auto governed = [&](const ModelConfig& model) {
    return (model.engine && !is_elsewhere(*model.engine)) || allowed.models.contains(model.id);
  };
  for (ModelConfig& model : config.models) {
    for (const ModelConfig& other : config.models) {
      if (model.id != other.id && governed(model) && governed(other) &&
          !allowed.pairs.contains({model.id, other.id})) {
        model.displaces.push_back(other.id);
      }
    }
    std::sort(model.displaces.begin(), model.displaces.end());
  }
}

}  // namespace heddle::config
