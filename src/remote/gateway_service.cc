#include "remote/gateway_service.h"

#include <map>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "remote/front_news.h"
#include "remote/messages.h"

namespace heddle::remote {

namespace asio = boost::asio;

/// The fronts of one manager, and what all of them are told.
class GatewayService::Impl : public std::enable_shared_from_this<GatewayService::Impl> {
 public:
  Impl(asio::any_io_executor executor,
       LeaderPort& manager,
       const core::ServingStatus& status,
       const GatewayServiceOptions& options)
      : executor_(std::move(executor)), manager_(manager), status_(status), options_(options) {}

  void begin() {
    ticker_.emplace(executor_, [this] { tell_all(); }, options_.status);
  }

  void close() {
    closed_ = true;
    ticker_.reset();
    for (const auto& [id, gateway] : std::exchange(gateways_, {})) {
      gateway->leave();
    }
  }

  void accept(std::unique_ptr<net::HostLink> link, const net::Peer& peer, FrontId id) {
    if (peer.identity.role != net::Role::kGateway) {
      link->end("gateways link here, and it is " + peer.identity.text());
      return;
    }
    std::unique_ptr<Gateway>& gateway = gateways_[id];
    if (gateway && gateway->identity() != peer.identity) {
      link->end("front " + std::to_string(id.value()) + " is that of " +
                gateway->identity().text());
      return;
    }
    if (!gateway) {
      gateway = std::make_unique<Gateway>(*this, id, peer.identity);
    }
    gateway->take(std::move(link), peer);
  }

  void configure(std::uint64_t revision, std::string text) {
    configuration_ = Configuration{.revision = revision, .text = std::move(text)};
    for (const auto& [id, gateway] : gateways_) {
      gateway->say(*configuration_);
    }
  }

  void hold_models(bool held) {
    holds_models_ = held;
    tell_served();
  }

  void changed() {
    if (ticker_) {
      ticker_->soon();
    }
  }

 private:
  /// One gateway, as a front of the manager.
  class Gateway final : public serving::FrontPort {
   public:
    Gateway(Impl& service, FrontId id, net::Identity identity)
        : service_(service), id_(id), identity_(std::move(identity)), grace_(service.executor_) {}

    [[nodiscard]] const net::Identity& identity() const { return identity_; }
    /// Another number whenever a link comes or ends.
    [[nodiscard]] std::uint64_t links() const { return links_; }

    void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
      log::info("gateway is linked",
                {{"gateway", peer.identity.text()}, {"address", peer.address}});
      grace_.cancel();
      if (caller_) {
        caller_->end("another link of " + identity_.text() + " replaces this one");
      }
      told_ = false;
      shares_quotas_ = false;
      links_ = ++service_.links_given_;
      caller_ = std::make_unique<Caller>(
          service_.executor_,
          std::move(link),
          peer,
          Caller::Handlers{
              .on_message = [this](const std::string& payload) { return hear(payload); },
              .on_gone = [this](const Error& why) { lose(why); }},
          service_.options_.queued_most);
    }

    void say(const ManagerToGateway& message) { say_encoded(encode(message)); }
    void say_encoded(std::string payload) {
      if (told_) {
        caller_->send(std::move(payload));
      }
    }

    /// What keys have used at another gateway, if this one takes that.
    void say_used(const std::string& payload) {
      if (shares_quotas_) {
        say_encoded(payload);
      }
    }

    /// It is a front no more.
    void leave() {
      told_ = false;
      caller_.reset();
      grace_.cancel();
      if (std::exchange(added_, false)) {
        service_.manager_.remove_front(id_);
      }
    }

    void set_models(std::map<ModelId, core::ServedModel> models) override {
      service_.serve(std::move(models));
    }
    void carry_out(const core::Dispatch& command) override { pass(command); }
    void carry_out(const core::Hold& command) override { pass(command); }
    void carry_out(const core::FailRequest& command) override { pass(command); }
    void tell_loading(ModelId model, std::uint64_t loaded_bytes) override {
      pass(Loading{.model = model, .bytes = loaded_bytes});
    }

   private:
    template <class Command>
    void pass(const Command& command) {
      say(command);
      service_.changed();
    }

    Result<void> hear(const std::string& payload) {
      Result<GatewayToManager> message = decode_gateway_to_manager(payload);
      if (!message) {
        return message.error();
      }
      if (std::holds_alternative<core::FrontState>(*message) == told_) {
        return Error{.code = Code::kCorrupt,
                     .message = "it does not say FrontState once, and first"};
      }
      if (Result<void> good = check_news(*message, id_); !good) {
        return good;
      }
      std::visit([this](const auto& said) { take(said); }, *message);
      service_.changed();
      return {};
    }

    void take(const core::FrontState& state) {
      if (!std::exchange(added_, true)) {
        service_.manager_.add_front(id_, *this);
      }
      service_.tell_served();
      told_ = true;
      if (service_.configuration_) {
        say(*service_.configuration_);
      }
      if (!service_.holds_models_) {
        say_encoded(service_.served_);
      }
      service_.manager_.adopt(state);
    }
    void take(const core::AdminLoad& load) {
      if (knows(load)) {
        service_.manager_.load(load.model, answer(load.ticket));
      }
    }
    void take(const core::AdminUnload& unload) {
      if (knows(unload)) {
        service_.manager_.unload(unload.model, unload.why, answer(unload.ticket));
      }
    }
    void take(const Apply& apply) {
      service_.manager_.apply(apply.text, apply.dry_run, answer(apply.ticket));
    }
    void take(const DrainHost& drain) {
      service_.manager_.leave(drain.host, drain.leaving, answer(drain.ticket));
    }
    void take(const QuotasUsed& used) {
      shares_quotas_ = true;
      if (!used.uses.empty()) {
        service_.pass_on(used, id_);
      }
    }
    template <class News>
    void take(const News& news) {
      service_.manager_.tell(news);
    }

    /// Whether there is the model that a gateway asks for; if not, it is told so.
    template <class Admin>
    bool knows(const Admin& admin) {
      if (service_.models_.contains(admin.model)) {
        return true;
      }
      say(core::AdminDone{.ticket = admin.ticket,
                          .error = Error{.code = Code::kNotFound,
                                         .message = "there is no model with id " +
                                                    std::to_string(admin.model.value())}});
      return false;
    }

    /// Tells the gateway how it went, if the link is still the one that it asked over.
    std::function<void(Result<void>)> answer(core::TicketId ticket) {
      return [weak = service_.weak_from_this(), id = id_, link = links_, ticket](
                 const Result<void>& done) {
        const std::shared_ptr<Impl> service = weak.lock();
        if (!service || !service->gateways_.contains(id)) {
          return;
        }
        Gateway& gateway = *service->gateways_.at(id);
        if (gateway.links_ == link) {
          gateway.pass(core::AdminDone{.ticket = ticket,
                                       .error = done ? std::nullopt : std::optional(done.error())});
        }
      };
    }

    /// The link has ended. Its requests are given up unless it comes again in time.
    void lose(const Error& why) {
      log::warning("gateway is not linked", {{"why", why.message}});
      told_ = false;
      caller_.reset();
      links_ = ++service_.links_given_;
      grace_.expires_after(service_.options_.grace);
      grace_.async_wait([weak = service_.weak_from_this(), id = id_, link = links_](
                            const boost::system::error_code& stopped) {
        const std::shared_ptr<Impl> service = weak.lock();
        if (!stopped && service) {
          service->give_up(id, link);
        }
      });
    }

    Impl& service_;
    const FrontId id_;
    const net::Identity identity_;
    asio::steady_timer grace_;
    std::unique_ptr<Caller> caller_{};  ///< None while it is not linked.
    std::uint64_t links_ = 0;
    bool told_ = false;           ///< Over this link it has said what requests it has.
    bool added_ = false;          ///< It is a front of the manager.
    bool shares_quotas_ = false;  ///< Over this link it has said QuotasUsed.
  };

  /// The gateway has not come again, unless another link is up.
  void give_up(FrontId id, std::uint64_t link) {
    const auto found = gateways_.find(id);
    if (closed_ || found == gateways_.end() || found->second->links() != link) {
      return;
    }
    log::warning("gateway is given up", {{"gateway", found->second->identity().text()}});
    const std::unique_ptr<Gateway> gateway = std::move(found->second);
    gateways_.erase(found);
    gateway->leave();
  }

  /// From the loop: the manager is not done with these models when it says them.
  void serve(std::map<ModelId, core::ServedModel> models) {
    models_ = std::move(models);
    if (!std::exchange(serving_, true)) {
      asio::post(executor_, [weak = weak_from_this()] {
        const std::shared_ptr<Impl> self = weak.lock();
        if (self && !self->closed_) {
          self->serving_ = false;
          self->tell_served();
          self->changed();
        }
      });
    }
  }

  /// Tells gateways of the models, if that is another thing than they were told last.
  void tell_served() {
    if (holds_models_) {
      return;
    }
    Served served{.shares_quotas = true};
    for (const auto& [id, model] : models_) {
      served.models[id] = {
          .digest = manager_.digest(id), .served = model, .tokens_max = manager_.tokens_max(id)};
    }
    for (const core::ModelStatus& status : status_.models()) {
      if (const auto found = served.models.find(status.id); found != served.models.end()) {
        found->second.name = status.name;
      }
    }
    std::string payload = encode(ManagerToGateway(std::move(served)));
    if (payload != served_) {
      served_ = std::move(payload);
      say_to_all(served_);
    }
  }

  /// How much memory there is for a model changes with the devices, so that is looked at, too.
  void tell_all() {
    if (gateways_.empty()) {
      return;
    }
    tell_served();
    Status status{.models = status_.models(),
                  .devices = status_.devices(),
                  .usage = status_.host_usage(),
                  .engines = status_.engines(),
                  .decisions = status_.decisions(),
                  .troubles = status_.troubles(),
                  .hosts = manager_.hosts()};
    make_ages(status, steady_now());
    say_to_all(encode(ManagerToGateway(std::move(status))));
  }

  /// What keys have used at one gateway, to the others. Nothing of it is kept here.
  void pass_on(const QuotasUsed& used, FrontId from) {
    const std::string payload = encode(ManagerToGateway(used));
    for (const auto& [id, gateway] : gateways_) {
      if (id != from) {
        gateway->say_used(payload);
      }
    }
  }

  void say_to_all(const std::string& payload) {
    for (const auto& [id, gateway] : gateways_) {
      gateway->say_encoded(payload);
    }
  }

  asio::any_io_executor executor_;
  LeaderPort& manager_;
  const core::ServingStatus& status_;
  const GatewayServiceOptions options_;
  std::optional<Configuration> configuration_{};
  std::map<ModelId, core::ServedModel> models_{};
  std::string served_{};           ///< What gateways were told of them last, encoded.
  std::uint64_t links_given_ = 0;  ///< A gateway that was given up and links again has others.
  bool serving_ = false;           ///< There may be something new to tell of them.
  bool holds_models_ = false;      ///< Nothing is told of them.
  std::map<FrontId, std::unique_ptr<Gateway>> gateways_{};
  std::optional<Ticker> ticker_{};
  bool closed_ = false;
};

GatewayService::GatewayService(asio::any_io_executor executor,
                               LeaderPort& manager,
                               const core::ServingStatus& status,
                               const GatewayServiceOptions& options)
    : impl_(std::make_shared<Impl>(std::move(executor), manager, status, options)) {
  impl_->begin();
}

GatewayService::~GatewayService() {
  impl_->close();
}

void GatewayService::accept(std::unique_ptr<net::HostLink> link,
                            const net::Peer& peer,
                            FrontId front) {
  impl_->accept(std::move(link), peer, front);
}
void GatewayService::configure(std::uint64_t revision, std::string text) {
  impl_->configure(revision, std::move(text));
}
void GatewayService::hold_models(bool held) {
  impl_->hold_models(held);
}

void GatewayService::changed() {
  impl_->changed();
}

}  // namespace heddle::remote
