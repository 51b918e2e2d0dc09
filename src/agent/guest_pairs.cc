#include "agent/guest_pairs.h"

#include <utility>
#include <variant>

#include "agent/guest_area.h"
#include "base/log.h"

namespace heddle::agent {

void GuestPairs::connect(const core::ConnectGuests& command) const {
  const HostModel& model = site_.model(command.model);
  const DeviceSetup& host = site_.device(command.host);
  auto [to_host, to_hot] = connect_guests(
      model, site_.page_bytes, host.gpu.has_value() ? device::Kind::kCuda : device::Kind::kCpu);
  site_.send(command.host,
             command.host_epoch,
             rpc::HostGuests{.model = command.model, .pages = command.pages},
             std::move(to_host));
  site_.send(
      command.hot, command.hot_epoch, rpc::MeetHost{.model = command.model}, std::move(to_hot));
  log::info("guests are served",
            {{"model", model.name},
             {"device", site_.device(command.hot).name},
             {"host", host.name},
             {"pages", command.pages.size()}});
}

void GuestPairs::share(const core::ShareMemory& command) {
  auto messages = shared_.share(command.host, command.model, command.pages);
  if (!messages) {
    const core::GuestsShared missed{
        .model = command.model, .pages = command.pages, .failure = messages.error()};
    (void)heard(command.host, missed, {});
    site_.hear(
        core::WorkerSaid{.device = command.host, .epoch = command.host_epoch, .report = missed});
    return;
  }
  for (SharedPages::Message& message : *messages) {
    site_.send(command.host, command.host_epoch, message.body, std::move(message.descriptors));
  }
}

void GuestPairs::pass(const core::PassMemory& command) const {
  for (SharedPages::Message& message :
       shared_.pass(command.host, command.model, command.pages, site_.device(command.host).pages)) {
    site_.send(command.hot, command.hot_epoch, message.body, std::move(message.descriptors));
  }
}

void GuestPairs::lease(const core::LeaseGuests& command) {
  shared_.lease(command.host, command.model, command.pages);
  site_.send(command.host,
             command.host_epoch,
             rpc::HostGuests{.model = command.model, .pages = command.pages},
             {});
}

void GuestPairs::disconnect(const core::DisconnectGuests& command) const {
  site_.send(command.hot, command.hot_epoch, rpc::MeetHost{.model = command.model}, {});
}

bool GuestPairs::heard(DeviceId device,
                       const core::WorkerReport& report,
                       std::vector<rpc::Descriptor> descriptors) {
  const auto warn = [&](const char* what, ModelId model, const Error& why) {
    log::warning(what,
                 {{"model", site_.model(model).name},
                  {"device", site_.device(device).name},
                  {"error", why.message}});
  };
  if (const auto* returned = std::get_if<core::GuestsReturned>(&report)) {
    if (returned->failure) {
      warn("pages for guests are of no use", returned->model, *returned->failure);
    }
    return true;
  }
  const auto* shared = std::get_if<core::GuestsShared>(&report);
  if (shared == nullptr) {
    return true;
  }
  if (!shared_.keep(device, *shared, std::move(descriptors))) {
    log::error("worker shares pages without a descriptor for each",
               {{"device", site_.device(device).name}});
    return false;
  }
  if (shared->failure) {
    warn("pages are not lent to guests", shared->model, *shared->failure);
  }
  return true;
}

}  // namespace heddle::agent
