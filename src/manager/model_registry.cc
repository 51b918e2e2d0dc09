#include "manager/model_registry.h"

#include <algorithm>
#include <utility>

#include "manager/blocks.h"

namespace heddle::manager {

namespace {

/// Whether no host that has told of it before has another one now. One that could not say what it
/// is had none, where another host could.
bool same_offers(const ConfiguredModel& before, const ConfiguredModel& now) {
  const bool known = before.offer() != nullptr;
  return std::ranges::all_of(before.offers, [&](const auto& entry) {
    const auto found = now.offers.find(entry.first);
    if (found == now.offers.end()) {
      return true;
    }
    const host::Offer& was = entry.second;
    const host::Offer& is = found->second;
    const bool alike = was.digest == is.digest && was.written == is.written &&
                       was.ranks.size() == is.ranks.size() &&
                       was.failure.has_value() == is.failure.has_value();
    return alike || (known && was.failure && !is.failure);
  });
}

bool same(const ConfiguredModel& before, const ConfiguredModel& now) {
  return before.config.id == now.config.id && before.config.path == now.config.path &&
         before.config.dtype == now.config.dtype && before.config.kv == now.config.kv &&
         before.config.f8_inputs == now.config.f8_inputs &&
         before.config.tensor_parallel == now.config.tensor_parallel &&
         before.config.pipeline_parallel == now.config.pipeline_parallel &&
         before.config.engine == now.config.engine && before.config.devices == now.config.devices &&
         (before.digest.empty() || before.digest == now.digest) && same_offers(before, now);
}

/// What the hosts that can serve the model have under its name: what was served before, where one
/// of them has it still, and what the first of them has else.
std::string choose_digest(const ConfiguredModel& model, const ConfiguredModel* before) {
  std::string first;
  for (const auto& [host, offer] : model.offers) {
    if (!offer.failure && before != nullptr && offer.digest == before->digest) {
      return offer.digest;
    }
    first = first.empty() && !offer.failure ? offer.digest : first;
  }
  return first;
}

/// Takes over what an earlier manager called it and its parts.
void take_ids(const std::vector<ModelId>& ids, ConfiguredModel& model) {
  auto id = ids.begin();
  model.id = *id++;
  const host::Offer* offer = model.offer();
  const std::size_t shards = offer == nullptr ? 0 : offer->ranks.size() - 1;
  while (id != ids.end() && model.shards.size() < shards) {
    model.shards.push_back(*id++);
  }
  for (std::size_t cut = 0; offer != nullptr && cut < offer->cuts.size(); ++cut) {
    std::vector<ModelId>& stages = model.cuts.emplace_back();
    while (id != ids.end() && stages.size() < offer->cuts[cut].stages.size()) {
      stages.push_back(*id++);
    }
  }
}

/// Whether it could be somewhere and cannot any more: under its id it is on its way out.
bool was_lost(const ConfiguredModel& before) {
  return before.placed && !before.blocks;
}

}  // namespace

bool ConfiguredModel::served_by(HostId host) const {
  const auto found = offers.find(host);
  return found != offers.end() && !found->second.failure && found->second.digest == digest;
}

const host::Offer* ConfiguredModel::offer() const {
  for (const auto& [host, offer] : offers) {
    if (served_by(host)) {
      return &offer;
    }
  }
  return nullptr;
}

std::optional<Error> ConfiguredModel::failure() const {
  if (offer() != nullptr) {
    return blocks ? std::nullopt : std::optional(blocks.error());
  }
  return offers.empty() ? Error{Code::kUnavailable, "no host has said yet whether it can serve it"}
                        : offers.begin()->second.failure;
}

std::uint64_t ConfiguredModel::image_bytes() const {
  const host::Offer* taken = external() ? nullptr : offer();
  return taken == nullptr ? 0 : taken->ranks.front().image_bytes;
}

void ModelRegistry::remember(const std::vector<host::Assignment>& assigned) {
  for (const host::Assignment& one : assigned) {
    for (const ModelId id : one.ids) {
      ids_given_ = std::max(ids_given_, id.value());
    }
    remembered_.push_back(one);
  }
}

/// What it was called before, where nothing else is called so now.
const host::Assignment* ModelRegistry::remembered(const ConfiguredModel& model) const {
  for (const host::Assignment& one : remembered_) {
    bool taken = false;
    for (std::size_t rank = 0; rank < one.ids.size(); ++rank) {
      const std::string called = name(one.ids[rank]);
      taken = taken || (!called.empty() &&
                        called != (rank == 0 ? one.name : host::shard_name(one.name, rank)));
    }
    if (one.name == model.config.id && one.digest == model.digest && !one.ids.empty() && !taken) {
      return &one;
    }
  }
  return nullptr;
}

/// Ids that are missing. A cut that is not offered any more has lost its ids for good.
void ModelRegistry::give_ids(const host::Offer& offer, ConfiguredModel& model) {
  while (model.shards.size() + 1 < offer.ranks.size()) {
    model.shards.emplace_back(++ids_given_);
  }
  model.cuts.resize(offer.cuts.size());
  for (std::size_t i = 0; i < offer.cuts.size(); ++i) {
    while (model.cuts[i].size() < offer.cuts[i].stages.size()) {
      model.cuts[i].emplace_back(++ids_given_);
    }
  }
}

void ModelRegistry::assign(std::vector<ConfiguredModel> models,
                           const std::map<HostId, host::HostFacts>& hosts) {
  for (ConfiguredModel& model : models) {
    const auto named = std::ranges::find_if(
        models_, [&](const auto& other) { return other.config.id == model.config.id; });
    model.digest = choose_digest(model, named == models_.end() ? nullptr : &*named);
    const bool offered = named != models_.end() && named->offer() != nullptr;
    const host::Assignment* before = offered ? nullptr : remembered(model);
    if (before != nullptr) {
      take_ids(before->ids, model);
    } else if (named != models_.end() && same(*named, model) && !was_lost(*named)) {
      model.id = named->id;
      model.shards = named->shards;
      model.cuts = named->cuts;
      model.placed = named->placed;
    } else {
      model.id = ModelId(++ids_given_);
    }
    if (const host::Offer* offer = model.offer()) {
      give_ids(*offer, model);
    }
    std::map<HostId, host::Offer> taken = model.offers;
    std::erase_if(taken, [&](const auto& entry) { return !model.served_by(entry.first); });
    model.blocks = find_blocks(taken, hosts);
    model.alike = largest_kind(taken, hosts);
    model.placed = model.placed || (model.blocks && !model.blocks->empty());
  }
  models_ = std::move(models);
}

const ConfiguredModel* ModelRegistry::find(ModelId id) const {
  const auto found = std::find_if(
      models_.begin(), models_.end(), [id](const auto& model) { return model.id == id; });
  return found == models_.end() ? nullptr : &*found;
}

std::string ModelRegistry::name(ModelId id) const {
  if (const ConfiguredModel* model = find(id)) {
    return model->config.id;
  }
  for (const ConfiguredModel& model : models_) {
    for (std::size_t i = 0; i < model.shards.size(); ++i) {
      if (model.shards[i] == id) {
        return host::shard_name(model.config.id, i + 1);
      }
    }
    for (const std::vector<ModelId>& cut : model.cuts) {
      const auto stage = std::ranges::find(cut, id);
      if (stage != cut.end()) {
        return host::stage_name(
            model.config.id, static_cast<std::size_t>(stage - cut.begin()), cut.size());
      }
    }
  }
  return {};
}

std::vector<core::ModelStatus> ModelRegistry::statuses(
    const std::vector<core::ModelStatus>& known) const {
  std::vector<core::ModelStatus> all;
  for (const ConfiguredModel& model : models_) {
    const auto found = std::find_if(
        known.begin(), known.end(), [&](const auto& status) { return status.id == model.id; });
    if (found != known.end()) {
      all.push_back(*found);
    } else {
      all.push_back({.id = model.id, .name = model.config.id});
      all.back().failure = model.failure();
    }
  }
  return all;
}

}  // namespace heddle::manager
