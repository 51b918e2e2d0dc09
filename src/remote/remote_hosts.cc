#include "remote/remote_hosts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/check.h"
#include "base/log.h"
#include "remote/callee.h"
#include "remote/text_fetcher.h"

namespace heddle::remote {

namespace asio = boost::asio;

class RemoteHosts::Impl : public std::enable_shared_from_this<RemoteHosts::Impl> {
 public:
  Impl(asio::any_io_executor executor,
       net::Self self,
       serving::ManagerPort& manager,
       std::function<void(HostId)> on_linked,
       const RemoteHostsOptions& options)
      : executor_(std::move(executor)),
        self_(std::move(self)),
        manager_(manager),
        on_linked_(std::move(on_linked)),
        options_(options),
        rest_(executor_),
        fetcher_(
            executor_,
            writer_.get_executor(),
            [this](HostId host, const FetchText& wanted) {
              if (const auto found = hosts_.find(host); found != hosts_.end()) {
                (void)found->second->send(wanted);
              }
            },
            options.fetch_patience) {}

  void set_front(serving::Front& front) { front_ = &front; }

  void set_hosts(const std::vector<HostAddress>& wanted) {
    HEDDLE_CHECK(front_ != nullptr);
    for (auto at = hosts_.begin(); at != hosts_.end();) {
      const auto same = std::ranges::find(wanted, at->first, &HostAddress::id);
      if (same == wanted.end() ? at->second->linked() : *same == at->second->where()) {
        ++at;
        continue;
      }
      at->second->leave();
      at = hosts_.erase(at);
    }
    std::set<HostId> ids;
    for (const HostAddress& where : wanted) {
      std::unique_ptr<Host>& host = hosts_[where.id];
      if (!host) {
        host = std::make_unique<Host>(*this, where);
      }
    }
    for (const auto& [id, host] : hosts_) {
      ids.insert(id);
    }
    fetcher_.set_hosts(std::move(ids));
  }

  void close() {
    closed_ = true;
    hosts_.clear();
  }

  void send(const serving::Place& place, core::WorkerMessage message) {
    const auto found = hosts_.find(host_of(place.device));
    const bool submits = std::holds_alternative<core::Submit>(message);
    // While a place is being lost, what comes there is lost with it.
    if (submits && std::ranges::find(lost_, place) != lost_.end()) {
      return;
    }
    const bool sent = found != hosts_.end() && found->second->send(place, std::move(message));
    if (submits && !sent) {
      lose_later(place);
    }
  }

  TextFetcher& fetcher() { return fetcher_; }

  [[nodiscard]] std::vector<std::string> troubles() const {
    std::vector<std::string> all;
    for (const auto& [id, host] : hosts_) {
      if (std::string trouble = host->trouble(); !trouble.empty()) {
        all.push_back(std::move(trouble));
      }
    }
    return all;
  }

 private:
  /// One host, and what was submitted over the link to it.
  class Host {
   public:
    Host(Impl& owner, HostAddress where)
        : owner_(owner),
          where_(std::move(where)),
          callee_(owner.executor_,
                  where_.address,
                  owner.self_,
                  {.roles = {net::Role::kAgent}, .name = where_.name},
                  {.on_up = [] {},
                   .on_message = [this](const std::string& payload) { return hear(payload); },
                   .on_down = [this](const Error& why) { down(why.message); }},
                  owner.options_.connector) {}

    [[nodiscard]] const HostAddress& where() const { return where_; }
    [[nodiscard]] bool linked() const { return linked_; }
    [[nodiscard]] std::string trouble() const {
      return linked_ ? "" : "host " + where_.name + " is not linked: " + why_down_;
    }

    /// Whether it goes to the host, which says so itself where it has no such life.
    bool send(const serving::Place& place, core::WorkerMessage message) {
      const bool submits = std::holds_alternative<core::Submit>(message);
      const bool sent =
          linked_ &&
          callee_.send(encode(GatewayToHost(core::TellWorker{
              .device = place.device, .epoch = place.epoch, .message = std::move(message)})));
      if (sent && submits && std::ranges::find(used_, place) == used_.end()) {
        used_.push_back(place);
      }
      return sent;
    }
    bool send(const FetchText& wanted) { return linked_ && callee_.send(encode(wanted)); }

    void leave() {
      if (std::exchange(linked_, false)) {
        for (const serving::Place& place : std::exchange(used_, {})) {
          owner_.lose(place);
        }
        owner_.fetcher_.go(where_.id);
      }
    }

   private:
    void down(const std::string& why) {
      if (why_down_ != why) {
        why_down_ = why;
        log::warning("host is not linked", {{"host", where_.name}, {"why", why}});
      }
      leave();
    }

    Result<void> hear(const std::string& payload) {
      const std::shared_ptr<Impl> keep = owner_.shared_from_this();  // Who is told may end it.
      Result<HostToGateway> message = decode_host_to_gateway(payload);
      if (!message) {
        return message.error();
      }
      if (std::holds_alternative<Lives>(*message) == linked_) {
        return Error{.code = Code::kCorrupt, .message = "it does not say Lives once, and first"};
      }
      return std::visit([this](auto& said) { return take(said); }, *message);
    }

    /// Whether it speaks of a device of its own.
    [[nodiscard]] Result<void> check(DeviceId device) const {
      if (host_of(device) == where_.id) {
        return {};
      }
      return Error{.code = Code::kCorrupt,
                   .message = "it speaks of device " + std::to_string(device.value()) +
                              ", which is of host " + std::to_string(host_of(device).value()) +
                              ", and is host " + std::to_string(where_.id.value())};
    }

    Result<void> take(Lives& greeting) {
      if (greeting.host != where_.id) {
        return Error{.code = Code::kCorrupt,
                     .message = "it is host " + std::to_string(greeting.host.value()) +
                                ", and want host " + std::to_string(where_.id.value())};
      }
      for (const Life& life : greeting.lives) {
        if (Result<void> own = check(life.device); !own) {
          return own;
        }
      }
      linked_ = true;
      why_down_.clear();
      log::info("host is linked", {{"host", where_.name}, {"workers", greeting.lives.size()}});
      owner_.fetcher_.come(where_.id);
      if (owner_.on_linked_) {
        owner_.on_linked_(where_.id);
      }
      return {};
    }
    Result<void> take(core::WorkerSaid& said) {
      if (Result<void> own = check(said.device); !own) {
        return own;
      }
      serving::Front& front = *owner_.front_;
      const serving::Place from{.device = said.device, .epoch = said.epoch};
      if (auto* produced = std::get_if<core::TokensProduced>(&said.report)) {
        front.accept(from, std::move(produced->tokens));
        return {};
      }
      const auto* const returned = std::get_if<core::RequestReturned>(&said.report);
      const auto* const failed = std::get_if<core::RequestFailed>(&said.report);
      if ((returned != nullptr && front.accept(from, *returned)) ||
          (failed != nullptr && front.accept(from, *failed))) {
        owner_.manager_.tell(said);
      }
      return {};
    }
    Result<void> take(LifeEnded& ended) {
      if (Result<void> own = check(ended.device); !own) {
        return own;
      }
      const serving::Place place{.device = ended.device, .epoch = ended.epoch};
      std::erase(used_, place);
      owner_.lose(place);
      return {};
    }
    Result<void> take(TextFile& piece) { return owner_.fetcher_.hear(where_.id, std::move(piece)); }
    Result<void> take(TextFailed& failed) { return owner_.fetcher_.hear(where_.id, failed); }

    Impl& owner_;
    const HostAddress where_;
    bool linked_ = false;                 ///< It has said who it is.
    std::vector<serving::Place> used_{};  ///< That were sent requests over this link.
    std::string why_down_ = "it has not been linked yet";
    Callee callee_;
  };

  /// The front hears of it from the loop, and not within its call.
  void lose(const serving::Place& place) {
    lost_.push_back(place);
    asio::post(executor_, [weak = weak_from_this()] {
      if (const std::shared_ptr<Impl> self = weak.lock()) {
        self->tell_lost();
      }
    });
  }

  void lose_later(const serving::Place& place) {
    lost_.push_back(place);
    if (std::exchange(resting_, true)) {
      return;
    }
    rest_.expires_after(options_.rest);
    rest_.async_wait([weak = weak_from_this()](const auto& /*stopped*/) {
      if (const std::shared_ptr<Impl> self = weak.lock()) {
        self->resting_ = false;
        self->tell_lost();
      }
    });
  }

  void tell_lost() {
    for (const serving::Place& gone : std::exchange(lost_, {})) {
      if (!closed_) {
        front_->lose(gone);
      }
    }
  }

  asio::any_io_executor executor_;
  const net::Self self_;
  serving::ManagerPort& manager_;
  const std::function<void(HostId)> on_linked_;
  const RemoteHostsOptions options_;
  serving::Front* front_ = nullptr;
  std::vector<serving::Place> lost_{};  ///< Of which the front is about to hear.
  asio::steady_timer rest_;
  bool resting_ = false;
  bool closed_ = false;
  asio::thread_pool writer_{1};
  TextFetcher fetcher_;
  std::map<HostId, std::unique_ptr<Host>> hosts_{};
};

RemoteHosts::RemoteHosts(asio::any_io_executor executor,
                         net::Self self,
                         serving::ManagerPort& manager,
                         std::function<void(HostId)> on_linked,
                         const RemoteHostsOptions& options)
    : impl_(std::make_shared<Impl>(
          std::move(executor), std::move(self), manager, std::move(on_linked), options)) {}

RemoteHosts::~RemoteHosts() {
  impl_->close();
}

void RemoteHosts::set_front(serving::Front& front) {
  impl_->set_front(front);
}
void RemoteHosts::set_hosts(const std::vector<HostAddress>& hosts) {
  impl_->set_hosts(hosts);
}
void RemoteHosts::send(const serving::Place& place, core::WorkerMessage message) {
  impl_->send(place, std::move(message));
}
Result<core::EngineRoute> RemoteHosts::engine_route(ModelId model, DeviceId device) const {
  return core::EngineRoute{.model = model, .host = host_of(device)};
}
void RemoteHosts::fetch_text(FetchText wanted,
                             std::filesystem::path folder,
                             std::function<void(Result<void>)> done) {
  impl_->fetcher().fetch(std::move(wanted), std::move(folder), std::move(done));
}
std::vector<std::string> RemoteHosts::troubles() const {
  return impl_->troubles();
}

}  // namespace heddle::remote
