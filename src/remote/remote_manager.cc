#include "remote/remote_manager.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "net/backoff.h"
#include "remote/callee.h"

namespace heddle::remote {

namespace asio = boost::asio;

class RemoteManager::Impl : public std::enable_shared_from_this<RemoteManager::Impl> {
 public:
  using Done = std::function<void(Result<void>)>;

  Impl(asio::any_io_executor executor,
       FrontId id,
       net::Self self,
       RemoteManagerHandlers handlers,
       const net::ConnectorOptions& options,
       Duration patience)
      : executor_(std::move(executor)),
        id_(id),
        self_(std::move(self)),
        handlers_(std::move(handlers)),
        options_(options),
        patience_(patience),
        backoff_(options.backoff),
        pause_(executor_),
        patience_ends_(executor_) {}

  void set_front(serving::FrontPort& front,
                 std::function<std::vector<core::Unfinished>()> unfinished) {
    front_ = &front;
    unfinished_ = std::move(unfinished);
  }

  void connect(const net::Address& address, const std::string& name) {
    HEDDLE_CHECK(front_ != nullptr);
    callee_.reset();
    if (up_) {
      down("it links with manager " + name + " at " + address.text() + " instead");
    }
    ++connects_;
    if (!std::exchange(failed_, false)) {
      dial(address, name);
      return;
    }
    pause_.expires_after(backoff_.next());
    pause_.async_wait([weak = weak_from_this(), turn = connects_, address, name](
                          const boost::system::error_code& /*stopped*/) {
      if (const std::shared_ptr<Impl> self = weak.lock(); self && turn == self->connects_) {
        self->dial(address, name);
      }
    });
  }

  void close() {
    ++connects_;
    pause_.cancel();
    patience_ends_.cancel();
    callee_.reset();
    asked_.clear();
  }

  void say(const GatewayToManager& message) {
    if (up_) {
      (void)callee_->send(encode(message));
    }
  }

  /// Has a manager do what may be done twice; it answers with the ticket.
  template <class Admin>
  void ask(Admin admin, Done done) {
    admin.ticket = core::TicketId(++tickets_);
    const Asked& asked =
        asked_.emplace(admin.ticket, Asked{std::move(admin), std::move(done)}).first->second;
    if (led_) {
      say(asked.message);
    } else {
      wait_for_manager();
    }
  }

  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] std::int64_t tokens_max(ModelId model) const {
    const auto found = served_.models.find(model);
    return found == served_.models.end() ? 0 : found->second.tokens_max;
  }
  [[nodiscard]] bool is_linked() const { return led_; }
  [[nodiscard]] bool shares_quotas() const { return shares_quotas_; }
  [[nodiscard]] std::vector<std::string> troubles() const {
    std::vector<std::string> all = status_.troubles;
    if (!led_) {
      all.insert(all.begin(), unreached());
    }
    return all;
  }

 private:
  /// What an operator wants, until a manager has answered.
  struct Asked {
    GatewayToManager message{};
    Done done{};
  };

  [[nodiscard]] std::string unreached() const {
    return "no manager has been reached for " + format_duration(steady_now() - unled_since_) +
           ": " + why_down_;
  }

  /// Whatever was asked fails where nobody leads in time.
  void wait_for_manager() {
    patience_ends_.expires_after(unled_since_ + patience_ - steady_now());
    patience_ends_.async_wait([weak = weak_from_this()](const boost::system::error_code& stopped) {
      if (const std::shared_ptr<Impl> self = weak.lock(); self && !stopped && !self->led_) {
        self->give_up();
      }
    });
  }

  void give_up() {
    const Error error{.code = Code::kUnavailable, .message = unreached()};
    for (auto& [ticket, asked] : std::exchange(asked_, {})) {
      asked.done(error);
    }
  }

  void dial(const net::Address& address, const std::string& name) {
    callee_ = std::make_unique<Callee>(
        executor_,
        address,
        self_,
        net::Wanted{.roles = {net::Role::kManager}, .name = name},
        Callee::Handlers{.on_up = [this] { up(); },
                         .on_message = [this](const std::string& payload) { return hear(payload); },
                         .on_down = [this](const Error& why) { fail(why); }},
        options_);
  }

  void up() {
    up_ = true;
    up_since_ = steady_now();
    say(core::FrontState{.front = id_, .requests = unfinished_()});
  }

  /// The link has ended, or a try to have one. One that ends as soon as it is up is no success.
  void fail(const Error& why) {
    const std::shared_ptr<Impl> self = shared_from_this();
    if (up_ && steady_now() - up_since_ >= options_.backoff.most) {
      backoff_.reset();
    }
    failed_ = true;
    down(why.message);
    if (handlers_.on_down) {
      handlers_.on_down(why);
    }
  }

  void down(const std::string& why) {
    if (std::exchange(up_, false)) {
      // Managers that stand by end each link, and are tried in turn until one leads.
      if (said_.insert(why).second) {
        log::warning("manager is not linked", {{"why", why}});
      }
    }
    why_down_ = why;
    shares_quotas_ = false;
    if (std::exchange(led_, false)) {
      unled_since_ = steady_now();
      wait_for_manager();
    }
  }

  // ---- What the manager says ----

  Result<void> hear(const std::string& payload) {
    const std::shared_ptr<Impl> self = shared_from_this();  // What is told may end this object.
    if (!led_) {
      begin_to_be_led();
    }
    Result<ManagerToGateway> message = decode_manager_to_gateway(payload);
    if (!message) {
      return message.error();
    }
    return std::visit([this](auto& said) { return take(said); }, *message);
  }

  void begin_to_be_led() {
    led_ = true;
    patience_ends_.cancel();
    said_.clear();
    log::info("manager is linked", {{"front", id_}});
    for (const auto& [ticket, asked] : asked_) {
      say(asked.message);
    }
  }

  /// Dispatch, Hold and FailRequest.
  template <class Command>
  Result<void> take(Command& command) {
    const RequestId request = command.request;
    if (front_of(request) != id_) {
      return Error{.code = Code::kCorrupt,
                   .message = "request " + std::to_string(request.value()) + " is of front " +
                              std::to_string(front_of(request).value()) + ", and this is front " +
                              std::to_string(id_.value())};
    }
    front_->carry_out(command);
    return {};
  }
  Result<void> take(core::AdminDone& answer) {
    const auto found = asked_.find(answer.ticket);
    if (found == asked_.end()) {
      return Error{.code = Code::kCorrupt,
                   .message = "it answers ticket " + std::to_string(answer.ticket.value()) +
                              ", which nobody waits for"};
    }
    const Done done = std::move(found->second.done);
    asked_.erase(found);
    done(answer.error ? Result<void>(std::move(*answer.error)) : Result<void>());
    return {};
  }
  Result<void> take(Configuration& configuration) {
    if (handlers_.on_configuration) {
      handlers_.on_configuration(configuration.revision, configuration.text);
    }
    return {};
  }
  Result<void> take(Served& served) {
    served_ = std::move(served);
    if (served_.shares_quotas && !std::exchange(shares_quotas_, true)) {
      say(QuotasUsed{});
    }
    std::map<ModelId, core::ServedModel> models;
    for (const auto& [id, facts] : served_.models) {
      models[id] = facts.served;
    }
    front_->set_models(std::move(models));
    if (handlers_.on_served) {
      handlers_.on_served(served_);
    }
    return {};
  }
  Result<void> take(Loading& loading) {
    front_->tell_loading(loading.model, loading.bytes);
    return {};
  }
  Result<void> take(QuotasUsed& used) {
    if (handlers_.on_quotas_used) {
      handlers_.on_quotas_used(used.uses);
    }
    return {};
  }
  Result<void> take(Status& status) {
    make_instants(status, steady_now());
    status_ = std::move(status);
    if (handlers_.on_status) {
      handlers_.on_status();
    }
    return {};
  }

  asio::any_io_executor executor_;
  const FrontId id_;
  const net::Self self_;
  const RemoteManagerHandlers handlers_;
  const net::ConnectorOptions options_;
  const Duration patience_;
  serving::FrontPort* front_ = nullptr;
  std::function<std::vector<core::Unfinished>()> unfinished_{};
  std::unique_ptr<Callee> callee_{};
  net::Backoff backoff_;      ///< Between links that the owner asks for.
  asio::steady_timer pause_;  ///< Before the next of them.
  asio::steady_timer patience_ends_;
  std::uint64_t connects_ = 0;
  bool failed_ = false;  ///< Since it was last told whom to link with.
  bool up_ = false;
  bool led_ = false;              ///< The manager that is linked has said something: it leads.
  bool shares_quotas_ = false;    ///< And it passes on what keys have used.
  std::set<std::string> said_{};  ///< Why links ended since one led, as far as the log has it.
  Instant up_since_{};
  Instant unled_since_ = steady_now();
  std::string why_down_ = "none was sought";
  Served served_{};
  Status status_{};
  std::map<core::TicketId, Asked> asked_{};
  std::uint64_t tickets_ = 0;
};

RemoteManager::RemoteManager(asio::any_io_executor executor,
                             FrontId id,
                             net::Self self,
                             RemoteManagerHandlers handlers,
                             const net::ConnectorOptions& options,
                             Duration patience)
    : impl_(std::make_shared<Impl>(
          std::move(executor), id, std::move(self), std::move(handlers), options, patience)) {}

RemoteManager::~RemoteManager() {
  impl_->close();
}

void RemoteManager::set_front(serving::FrontPort& front,
                              std::function<std::vector<core::Unfinished>()> unfinished) {
  impl_->set_front(front, std::move(unfinished));
}
void RemoteManager::connect(const net::Address& address, const std::string& name) {
  impl_->connect(address, name);
}
void RemoteManager::tell(const serving::RequestNews& news) {
  std::visit([this](const auto& said) { impl_->say(said); }, news);
}
std::int64_t RemoteManager::tokens_max(ModelId model) const {
  return impl_->tokens_max(model);
}
void RemoteManager::load(ModelId model, std::function<void(Result<void>)> done) {
  impl_->ask(core::AdminLoad{.model = model}, std::move(done));
}
void RemoteManager::unload(ModelId model,
                           core::EvictionReason why,
                           std::function<void(Result<void>)> done) {
  impl_->ask(core::AdminUnload{.model = model, .why = why}, std::move(done));
}
void RemoteManager::tell_quotas_used(std::vector<core::QuotaUse> uses) {
  impl_->say(QuotasUsed{.uses = std::move(uses)});
}
bool RemoteManager::shares_quotas() const {
  return impl_->shares_quotas();
}
std::vector<core::HostEntry> RemoteManager::hosts() const {
  return impl_->status().hosts;
}
void RemoteManager::leave(HostId host, bool leaving, std::function<void(Result<void>)> done) {
  impl_->ask(DrainHost{.host = host, .leaving = leaving}, std::move(done));
}
void RemoteManager::apply(std::string configuration,
                          bool dry_run,
                          std::function<void(Result<void>)> done) {
  impl_->ask(Apply{.text = std::move(configuration), .dry_run = dry_run}, std::move(done));
}
std::vector<core::ModelStatus> RemoteManager::models() const {
  return impl_->status().models;
}
std::vector<core::DeviceStatus> RemoteManager::devices() const {
  return impl_->status().devices;
}
ledger::PoolUsage RemoteManager::host_usage() const {
  return impl_->status().usage;
}
std::vector<core::EngineStatus> RemoteManager::engines() const {
  return impl_->status().engines;
}
std::vector<core::NotedDecision> RemoteManager::decisions() const {
  return impl_->status().decisions;
}
bool RemoteManager::is_linked() const {
  return impl_->is_linked();
}
std::vector<std::string> RemoteManager::troubles() const {
  return impl_->troubles();
}

}  // namespace heddle::remote
