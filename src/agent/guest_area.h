#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "agent/host_model.h"
#include "base/result.h"
#include "device/device.h"
#include "rpc/descriptor.h"
#include "weave/job_area.h"

namespace heddle::agent {

/// The memory through which the worker that has `model` has another run attention over its guests,
/// which lie in pages of `page_bytes`; both are devices of `kind`. kInvalidArgument where a page
/// cannot hold its KV, kResourceExhausted as weave::JobArea::create.
Result<std::shared_ptr<weave::JobArea>> make_guest_area(const HostModel& model,
                                                        std::size_t page_bytes,
                                                        device::Kind kind);

/// What goes beside rpc::HostGuests and rpc::MeetHost: the descriptor of one such area each.
/// Nothing where it cannot be had, which is logged.
struct GuestEnds {
  std::vector<rpc::Descriptor> host{};
  std::vector<rpc::Descriptor> hot{};
};
GuestEnds connect_guests(const HostModel& model, std::size_t page_bytes, device::Kind kind);

}  // namespace heddle::agent
