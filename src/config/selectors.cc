#include "config/selectors.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "spec/json_writer.h"

namespace heddle::config {

namespace {

void declare_selector(Fields& f, SelectorConfig& selector) {
  auto strategy = static_cast<std::size_t>(selector.strategy);
  f.choice({"strategy",
            "pin: always the first target; warm: the first that is in memory; spillover: the next "
            "one once those in memory have settings.spillover requests each."},
           {"pin", "warm", "spillover"},
           strategy);
  f.require("strategy", "one of pin, warm and spillover");
  selector.strategy = static_cast<SelectorStrategy>(strategy);
  f.texts({"targets", "Models, aliases or models of peers; the first is preferred."},
          selector.targets);
  f.require("targets", "the names of the models that it stands for");
  f.section({"settings", "Of the strategy."}, [&selector](Fields& settings) {
    settings.integer({"spillover", "Requests of each target before the next one takes any."},
                     {.least = 1},
                     selector.spillover);
  });
  f.text({"name", "Name for people."}, selector.name);
  f.text({"description", "Description for people."}, selector.description);
  f.flag({"unlisted", "Serve it but leave it out of listings."}, selector.unlisted);
  std::vector<std::pair<std::string, std::string>> metadata;
  f.values({"metadata", "Anything, shown as it is where models are listed."}, metadata);
  if (!metadata.empty()) {
    spec::JsonWriter json;
    json.begin_object();
    for (const auto& [key, value] : metadata) {
      json.key(key).json(value);
    }
    selector.metadata = std::move(json.end_object()).take();
  }
}

void declare_profile(Fields& f, ProfileConfig& profile) {
  f.text({"description", "Description for people."}, profile.description);
  std::vector<std::pair<std::string, std::string>> pins;
  f.values({"pins", "Names that requests use, to the models that are meant; null: to none."}, pins);
  for (const auto& [name, json] : pins) {
    const auto target = nlohmann::json::parse(json, nullptr, false);
    if (target.is_string()) {
      profile.pins.emplace_back(name, target.get<std::string>());
    } else if (target.is_null()) {
      profile.pins.emplace_back(name, "");
    } else if (target.is_primitive() && !target.is_discarded()) {
      profile.pins.emplace_back(name, json);  // A model whose id looks like a number.
    } else {
      f.reject("pins", name + " is no name of a model, nor null");
    }
  }
}

/// The names of models, to the ids of those that are not a peer's; theirs are empty.
std::map<std::string, std::string> names_of_models(const Config& config) {
  std::map<std::string, std::string> names;
  for (const PeerConfig& peer : config.peers) {
    for (const std::string& model : peer.models) {
      names.emplace(model, "");
      names.emplace(peer.name + "/" + model, "");
    }
  }
  const auto add = [&names](const ModelConfig& model) {
    names[model.id] = model.id;
    for (const std::string& alias : model.aliases) {
      names[alias] = model.id;
    }
  };
  for (const ModelConfig& model : config.models) {
    add(model);
    std::ranges::for_each(model.adapters, add);
  }
  return names;
}

bool displaces(const Config& config, const std::string& model, const std::string& other) {
  return std::ranges::any_of(config.models, [&](const ModelConfig& each) {
    return each.id == model && std::ranges::binary_search(each.displaces, other);
  });
}

/// What is wrong with a selector's targets; empty: nothing.
std::string target_trouble(const Config& config,
                           const SelectorConfig& selector,
                           const std::map<std::string, std::string>& names) {
  std::set<std::string> before;
  for (const std::string& target : selector.targets) {
    const auto found = names.find(target);
    if (found == names.end()) {
      return "\"" + target + "\" is no model";
    }
    const std::string& id = found->second;
    if (selector.strategy == SelectorStrategy::kWarm && id.empty()) {
      return "\"" + target + "\" is a peer's, of which it is not known whether it is in memory";
    }
    if (selector.strategy != SelectorStrategy::kSpillover) {
      continue;
    }
    if (!before.insert(id.empty() ? target : id).second) {
      return "\"" + target + "\" is the same model as one before it";
    }
    for (const std::string& other : before) {
      if (displaces(config, id, other) || displaces(config, other, id)) {
        return "\"" + other + "\" and \"" + id +
               "\" displace each other, and requests can only spill over to a model that may be "
               "there at once: say what memory each needs, or have a group that does not swap";
      }
    }
  }
  return "";
}

}  // namespace

void declare_selectors(Fields& fields, Config& config) {
  fields.named_sections({"selectors", "Names that stand for one of several models each."},
                        [&config](const std::string& id, Fields& f) {
                          SelectorConfig selector{.id = id};
                          declare_selector(f, selector);
                          config.selectors.push_back(std::move(selector));
                        });
  fields.named_sections(
      {"profiles", "Names that stand for others while PUT /api/profiles/active has chosen one."},
      [&config](const std::string& id, Fields& f) {
        ProfileConfig profile{.id = id};
        declare_profile(f, profile);
        config.profiles.push_back(std::move(profile));
      });
  fields.flag({"includeAliasesInList", "List aliases as if they were models."},
              config.list_aliases);
}

void check_selectors(const Config& config, Diagnosis& diagnosis) {
  std::map<std::string, std::string> names = names_of_models(config);
  const auto reject = [&diagnosis](const std::string& where, const std::string& problem) {
    diagnosis.problems.push_back(diagnosis.origin + ": " + where + ": " + problem);
  };
  for (const SelectorConfig& selector : config.selectors) {
    const std::string where = "selectors." + selector.id;
    if (selector.id.empty() || names.contains(selector.id)) {
      reject(where, "the name is empty, or the name of a model already");
    }
    const std::string trouble = target_trouble(config, selector, names);
    if (!trouble.empty()) {
      reject(where + ".targets", trouble);
    }
  }
  for (const SelectorConfig& selector : config.selectors) {
    names.emplace(selector.id, "");
  }
  for (const ProfileConfig& profile : config.profiles) {
    for (const auto& [name, target] : profile.pins) {
      if (!target.empty() && !names.contains(target)) {
        reject("profiles." + profile.id + ".pins." + name,
               "\"" + target + "\" is neither a model nor a selector");
      }
    }
  }
}

}  // namespace heddle::config
