#include "gateway/batch_turns.h"

#include <algorithm>

namespace heddle::gateway {

namespace {

bool has(const std::vector<DeviceId>& devices, DeviceId device) {
  return std::ranges::find(devices, device) != devices.end();
}

bool meet(const std::vector<DeviceId>& a, const std::vector<DeviceId>& b) {
  return std::ranges::any_of(a, [&b](DeviceId device) { return has(b, device); });
}

/// Whether a client waits for this model to come.
bool is_waited_for(const ModelUse& model) {
  return model.clients > 0 && !model.here;
}

/// Whether nobody would miss what the device has when `model` comes.
bool is_free(const std::vector<ModelUse>& all,
             const ModelUse& model,
             DeviceId device,
             Duration quiet) {
  return std::ranges::none_of(all, [&](const ModelUse& other) {
    const bool lines = other.lines > 0 && other.id != model.id;
    const bool used = has(other.on, device) && (other.clients > 0 || lines || other.quiet < quiet);
    return used || (is_waited_for(other) && has(other.may_be, device));
  });
}

/// Whether lines of `model` are in the way of a client of `other`.
bool yields_to(const ModelUse& model, const ModelUse& other) {
  const bool nowhere = model.on.empty();
  const std::vector<DeviceId>& on = nowhere ? model.may_be : model.on;
  if (is_waited_for(other)) {
    return other.id != model.id && meet(on, other.may_be);
  }
  // Nobody is to be drained for a line.
  const bool in_use = nowhere && model.clients == 0 && other.clients > 0;
  return (other.late || in_use) && meet(on, other.on);
}

}  // namespace

bool may_begin(const std::vector<ModelUse>& all, std::size_t model, Duration quiet) {
  const ModelUse& one = all[model];
  if (one.here) {
    return std::ranges::none_of(all, [&](const ModelUse& other) {
      return other.clients > 0 && meet(one.on, other.here ? other.on : other.may_be);
    });
  }
  return std::ranges::any_of(one.may_be,
                             [&](DeviceId device) { return is_free(all, one, device, quiet); });
}

std::vector<std::size_t> called_back(const std::vector<ModelUse>& all) {
  std::vector<std::size_t> back;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool yields = all[i].lines > 0 && std::ranges::any_of(all, [&](const ModelUse& other) {
                          return yields_to(all[i], other);
                        });
    if (yields) {
      back.push_back(i);
    }
  }
  return back;
}

}  // namespace heddle::gateway
