#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "host/offer.h"

namespace heddle::manager {

/// The blocks of devices that a model in several ranks can be on, one at most for each device that
/// can lead. Where hosts have blocks of their own, it is those. Else it is cut into stages over
/// hosts: their devices make a ring, by host and device, and a block is a device with those after
/// it that can hold the next stages. Only hosts of one kind are in a ring: with the same processor
/// features, page size, program, step and bytes of weights.
///
/// @param offers  Of the hosts that take part in serving it. Of one rank there are no blocks.
/// @param hosts   What these hosts are.
/// @return kUnavailable, saying what lacks or differs, where there is none.
[[nodiscard]] Result<std::vector<host::Block>> find_blocks(
    const std::map<HostId, host::Offer>& offers, const std::map<HostId, host::HostFacts>& hosts);

/// The largest group of hosts of one kind, as above: which may run a model in stages together, each
/// any stage.
[[nodiscard]] std::set<HostId> largest_kind(const std::map<HostId, host::Offer>& offers,
                                            const std::map<HostId, host::HostFacts>& hosts);

}  // namespace heddle::manager
