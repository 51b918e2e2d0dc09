#include "remote/host_service.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/thread_pool.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "core/host_memory.h"
#include "core/submitted.h"
#include "history/load_book.h"
#include "remote/known.h"
#include "remote/load_pieces.h"
#include "remote/messages.h"

namespace heddle::remote {

namespace asio = boost::asio;

namespace {

/// What may wait for a gateway before files of models do.
constexpr std::size_t kTextQueuedMost = 4 * kTextPieceMost;

Error refused(Code code, std::string message) {
  return {.code = code, .message = std::move(message)};
}

}  // namespace

/// The managers' side and the gateways' side of one host.
class HostService::Impl {
 public:
  Impl(asio::any_io_executor executor,
       host::LocalHostPort& port,
       HostId host,
       host::HostFacts facts,
       HostServiceHooks hooks,
       const HostServiceOptions& options)
      : executor_(std::move(executor)),
        port_(port),
        host_(host),
        facts_(std::move(facts)),
        hooks_(std::move(hooks)),
        options_(options),
        devices_(host, facts_.devices),
        status_(executor_, [this] { tell_status(); }, options.status) {}

  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
    const bool manages = peer.identity.role == net::Role::kManager;
    if (!manages && peer.identity.role != net::Role::kGateway) {
      link->end("a host links with managers and gateways");
      return;
    }
    const core::LinkId id{++links_given_};
    for (const auto& [other, one] : links_) {
      if (one.caller->peer().identity == peer.identity) {
        end(other, "another link of " + peer.identity.text() + " replaces this one");
        break;
      }
    }
    log::info("link", {{"from", peer.identity.text()}, {"address", peer.address}});
    Link& entry = links_[id];
    entry.caller = std::make_unique<Caller>(
        executor_,
        std::move(link),
        peer,
        Caller::Handlers{.on_message =
                             [this, id, manages](const std::string& payload) {
                               return manages ? hear_manager(id, payload)
                                              : hear_gateway(id, payload);
                             },
                         .on_gone =
                             [this, id](const Error& why) {
                               log::warning("link has ended", {{"why", why.message}});
                               forget(id);
                             },
                         .on_drained = [this, id] { links_.at(id).pause(false); }},
        options_.queued_most);
    if (!manages) {
      entry.text = std::make_unique<TextSender>(
          executor_, reader_.get_executor(), hooks_.find_text, [this, id](const auto& message) {
            tell_gateway(id, message);
            Link& to = links_.at(id);
            to.pause(to.caller->queued_bytes() > kTextQueuedMost);
          });
      tell_gateway(id, Lives{.host = host_, .lives = lives()});
    }
  }

  // ---- What the host says ----

  void heard(core::ManagerEvent event) {
    memory_.hear(event);
    if (const auto* said = std::get_if<core::WorkerSaid>(&event)) {
      if (pass_on(*said)) {
        return;
      }
    }
    std::visit([this](auto& news) { tell_news(news); }, event);
  }

  void tokens(const Life& from, std::vector<core::TokenEvent> tokens) {
    for (auto& [link, share] : submitted_.share_out(from, std::move(tokens))) {
      tell_gateway(link,
                   core::WorkerSaid{.device = from.device,
                                    .epoch = from.epoch,
                                    .report = core::TokensProduced{.tokens = std::move(share)}});
    }
  }

  void tell_manager(const FromHost& message) {
    if (leader_) {
      links_.at(*leader_).caller->send(encode(message));
    }
  }

  [[nodiscard]] bool led() const { return leader_.has_value(); }
  [[nodiscard]] bool leaving() const { return leaving_; }
  [[nodiscard]] std::size_t requests() const { return submitted_.size(); }
  [[nodiscard]] std::vector<core::DeviceStatus> devices() const {
    std::vector<core::DeviceStatus> all;
    const std::map<DeviceId, WorkerEpoch> up = memory_.lives();
    for (const core::ManagerDevice& device : facts_.devices) {
      core::DeviceStatus& one =
          all.emplace_back(core::DeviceStatus{.id = device.id, .name = device.name});
      if (const auto life = up.find(device.id); life != up.end()) {
        one.up = true;
        one.epoch = life->second;
      }
      port_.describe(one);
    }
    return all;
  }

  void leave(bool leaving) {
    leaving_ = leaving;
    log::info(leaving ? "host is to go" : "host stays");
    heard(core::HostLeaving{.host = host_, .leaving = leaving});
  }

  [[nodiscard]] bool empty() const {
    const core::ModelsByDevice models = port_.models();
    const std::vector<core::EngineStatus> engines = port_.engines();
    const bool left =
        std::ranges::any_of(models, [](const auto& entry) { return !entry.second.empty(); }) ||
        std::ranges::any_of(engines, [](const core::EngineStatus& engine) {
          return engine.state != core::EngineState::kStopped;
        });
    return submitted_.size() == 0 && (!leader_ || !left);
  }

 private:
  /// A manager, or a gateway.
  struct Link {
    std::unique_ptr<Caller> caller{};
    std::optional<FrontId> front{};      ///< Whose requests a gateway has, once it had any.
    std::unique_ptr<TextSender> text{};  ///< Of a gateway.

    void pause(bool paused) const {
      if (text) {
        text->pause(paused);
      }
    }
  };

  // ---- Links ----

  void end(core::LinkId id, const std::string& why) {
    log::info("link is ended",
              {{"from", links_.at(id).caller->peer().identity.text()}, {"why", why}});
    links_.at(id).caller->end(why);
    forget(id);
  }

  /// The link has ended, and with it what was submitted over it.
  void forget(core::LinkId id) {
    for (const auto& [request, place] : submitted_.end(id)) {
      port_.send(place.device, place.epoch, core::CancelRequest{.request = request});
    }
    if (leader_ == id) {
      leader_.reset();
      port_.forget_orders();
    }
    links_.erase(id);
  }

  void tell_gateway(core::LinkId id, const HostToGateway& message) {
    links_.at(id).caller->send(encode(message));
  }

  // ---- From managers ----

  Result<void> hear_manager(core::LinkId id, const std::string& payload) {
    Result<ToHost> message = decode_to_host(payload);
    if (!message) {
      return message.error();
    }
    if (const auto* lead = std::get_if<Lead>(&*message)) {
      return follow(id, *lead);
    }
    if (leader_ != id) {
      return refused(Code::kFailedPrecondition, "it orders and does not lead; want Lead first");
    }
    return std::visit([this](auto& wanted) { return obey(wanted); }, *message);
  }

  Result<void> follow(core::LinkId id, const Lead& lead) {
    const net::Identity& who = links_.at(id).caller->peer().identity;
    const bool others = lead.term == term_ && leads_ && *leads_ != who;
    if (lead.term < term_ || others) {
      if (lead.hears_of_terms) {
        links_.at(id).caller->send(encode(FromHost(LaterTerm{.term = term_ + (others ? 1 : 0)})));
      }
      return refused(Code::kFailedPrecondition,
                     "it leads in term " + std::to_string(lead.term) + ", and " + leads_->text() +
                         " in term " + std::to_string(term_));
    }
    if (leader_ == id) {
      return refused(Code::kCorrupt, "it leads already in term " + std::to_string(term_));
    }
    if (leader_) {
      end(*leader_,
          who.text() + " leads in term " + std::to_string(lead.term) + ", which is after term " +
              std::to_string(term_));
    }
    log::info("manager leads", {{"manager", who.text()}, {"term", lead.term}});
    term_ = lead.term;
    leads_ = who;
    leader_ = id;
    facts_.assigned = models_.all();
    tell_manager(
        HostHere{.host = host_, .facts = facts_, .remembers_loads = true, .shares_cache = true});
    for (core::ManagerEvent& known : memory_.all(port_.models())) {
      std::visit([this](auto& event) { tell_known(event); }, known);
    }
    tell_manager(HostKnown{});
    status_.soon();
    return {};
  }

  Result<void> obey(const Lead& /*lead*/) { return {}; }  // Heard before.
  Result<void> obey(Configuration& configuration) {
    hooks_.on_configuration(configuration.revision, std::move(configuration.text));
    return {};
  }
  Result<void> obey(const SetModels& wanted) {
    if (Result<void> taken = models_.take(wanted.models); !taken) {
      return taken;
    }
    port_.set_models(wanted.models);
    return {};
  }
  Result<void> obey(const Holders& holders) {
    port_.set_holders(holders.models);
    return {};
  }
  Result<void> obey(const Leave& wanted) {
    leave(wanted.leaving);
    return {};
  }
  /// Windows have the numbers that managers' clocks give them. This host compares them with no
  /// clock of its own.
  Result<void> obey(const Loads& wanted) {
    loads_.begin(wanted.length, wanted.keep);
    put(wanted, loads_);
    return {};
  }
  Result<void> obey(const TellLoads& wanted) {
    Loads answer{.length = wanted.length, .last = true};
    if (loads_.length() == wanted.length) {
      if (loads_.digest() == wanted.digest) {
        answer.same = true;
      } else {
        answer = piece_from(loads_, {.model = wanted.model, .window = wanted.window});
      }
    }
    tell_manager(answer);
    return {};
  }
  Result<void> obey(core::TellWorker& tell) {
    if (Result<void> known = devices_.check(tell.device); !known) {
      return known;
    }
    port_.send(tell.device, tell.epoch, std::move(tell.message));
    return {};
  }
  Result<void> obey(core::FormGroup& form) {
    form.group.term = term_;
    return obey(std::as_const(form));
  }
  template <class Order>
  Result<void> obey(const Order& order) {
    if (Result<void> possible = check_order(order, devices_, models_); !possible) {
      return possible;
    }
    port_.carry_out(order);
    return {};
  }

  // ---- From gateways ----

  Result<void> hear_gateway(core::LinkId id, const std::string& payload) {
    Result<GatewayToHost> message = decode_gateway_to_host(payload);
    if (!message) {
      return message.error();
    }
    if (auto* fetch = std::get_if<FetchText>(&*message)) {
      return links_.at(id).text->fetch(std::move(*fetch));
    }
    auto& tell = std::get<core::TellWorker>(*message);
    if (Result<void> known = devices_.check(tell.device); !known) {
      return known;
    }
    const Life place{.device = tell.device, .epoch = tell.epoch};
    if (auto* submit = std::get_if<core::Submit>(&tell.message)) {
      return run(id, place, std::move(*submit));
    }
    if (const auto* cancel = std::get_if<core::CancelRequest>(&tell.message)) {
      if (submitted_.find(id, cancel->request) == place) {
        submitted_.remove(id, cancel->request);
        port_.send(place.device, place.epoch, *cancel);
      }
    } else if (const auto* finish = std::get_if<core::FinishChoice>(&tell.message)) {
      if (submitted_.find(id, finish->request) == place) {
        submitted_.finish(id, *finish);
        port_.send(place.device, place.epoch, *finish);
      }
    }
    return {};
  }

  Result<void> run(core::LinkId id, const Life& place, core::Submit submit) {
    if (Result<void> own = check_front(id, submit.request); !own) {
      return own;
    }
    if (const std::optional<Life> before = submitted_.find(id, submit.request)) {
      port_.send(before->device, before->epoch, core::CancelRequest{.request = submit.request});
    }
    if (!memory_.lives(place.device, place.epoch)) {
      submitted_.remove(id, submit.request);
      tell_gateway(id, LifeEnded{.device = place.device, .epoch = place.epoch});
      return {};
    }
    submitted_.add(id, place, submit);
    port_.send(place.device, place.epoch, std::move(submit));
    return {};
  }

  /// A gateway has the requests of one front, and no other gateway has them.
  Result<void> check_front(core::LinkId id, RequestId request) {
    const FrontId front = front_of(request);
    for (const auto& [other, link] : links_) {
      if (other != id && link.front == front) {
        return refused(Code::kCorrupt,
                       "request " + std::to_string(request.value()) + " is of front " +
                           std::to_string(front.value()) + ", which " +
                           link.caller->peer().identity.text() + " has");
      }
    }
    std::optional<FrontId>& own = links_.at(id).front;
    if (own.value_or(front) != front) {
      return refused(Code::kCorrupt,
                     "request " + std::to_string(request.value()) + " is of front " +
                         std::to_string(front.value()) + ", and this gateway has front " +
                         std::to_string(own->value()));
    }
    own = front;
    return {};
  }

  [[nodiscard]] std::vector<Life> lives() const {
    std::vector<Life> all;
    for (const auto& [device, epoch] : memory_.lives()) {
      all.push_back({.device = device, .epoch = epoch});
    }
    return all;
  }

  // ---- To managers and gateways ----

  /// What a worker says of a request, to the gateway that has it. False for anything else.
  bool pass_on(const core::WorkerSaid& said) {
    RequestId request;
    if (const auto* returned = std::get_if<core::RequestReturned>(&said.report)) {
      request = returned->request;
    } else if (const auto* failed = std::get_if<core::RequestFailed>(&said.report)) {
      request = failed->request;
    } else {
      return false;
    }
    if (const auto link =
            submitted_.given_up({.device = said.device, .epoch = said.epoch}, request)) {
      tell_gateway(*link, said);
    }
    return true;
  }

  template <class Known>
  void tell_known(Known& known) {
    if constexpr (std::is_constructible_v<FromHost, Known>) {
      tell_manager(std::move(known));
    }
  }
  template <class News>
  void tell_news(News& news) {
    if constexpr (std::is_same_v<News, core::WorkerDown>) {
      const Life life{.device = news.device, .epoch = news.epoch};
      submitted_.end(life);
      for (const auto& [id, link] : links_) {
        if (link.text) {
          tell_gateway(id, LifeEnded{.device = life.device, .epoch = life.epoch});
        }
      }
    }
    if constexpr (std::is_constructible_v<FromHost, News>) {
      tell_manager(std::move(news));
      if constexpr (!std::is_same_v<News, core::WorkerSaid> &&
                    !std::is_same_v<News, core::ImageState>) {
        status_.soon();
      }
    }
  }

  void tell_status() {
    if (!leader_) {
      return;
    }
    HostStatus status{.usage = port_.host_usage(),
                      .engines = port_.engines(),
                      .troubles = port_.troubles(),
                      .fetches = port_.fetches()};
    status.devices = devices();
    for (core::DeviceStatus& device : status.devices) {
      device.name.clear();  // That is the manager's to say.
    }
    make_ages(status, steady_now());
    tell_manager(status);
  }

  asio::any_io_executor executor_;
  host::LocalHostPort& port_;
  const HostId host_;
  host::HostFacts facts_;
  const HostServiceHooks hooks_;
  const HostServiceOptions options_;
  const KnownDevices devices_;
  KnownModels models_{};
  core::HostMemory memory_{};
  history::LoadBook loads_{};  ///< Of managers before, for the next one.
  core::Submitted submitted_{};
  bool leaving_ = false;
  std::uint64_t links_given_ = 0;
  std::uint64_t term_ = 0;                ///< The highest heard.
  std::optional<net::Identity> leads_{};  ///< Who said it.
  std::optional<core::LinkId> leader_{};  ///< The link of the one who leads, while it is up.
  asio::thread_pool reader_{1};
  std::map<core::LinkId, Link> links_{};
  Ticker status_;
};

HostService::HostService(asio::any_io_executor executor,
                         host::LocalHostPort& port,
                         HostId host,
                         host::HostFacts facts,
                         HostServiceHooks hooks,
                         const HostServiceOptions& options)
    : impl_(std::make_unique<Impl>(
          std::move(executor), port, host, std::move(facts), std::move(hooks), options)) {}

HostService::~HostService() = default;

void HostService::take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
  impl_->take(std::move(link), peer);
}
void HostService::heard(core::ManagerEvent event) {
  impl_->heard(std::move(event));
}
void HostService::tokens(DeviceId device, WorkerEpoch epoch, std::vector<core::TokenEvent> tokens) {
  impl_->tokens({.device = device, .epoch = epoch}, std::move(tokens));
}
void HostService::told(DeviceId device, ModelId model) {
  impl_->tell_manager(Told{.device = device, .model = model});
}
void HostService::leave(bool leaving) {
  impl_->leave(leaving);
}
bool HostService::led() const {
  return impl_->led();
}
bool HostService::leaving() const {
  return impl_->leaving();
}
std::size_t HostService::requests() const {
  return impl_->requests();
}
std::vector<core::DeviceStatus> HostService::devices() const {
  return impl_->devices();
}
bool HostService::empty() const {
  return impl_->empty();
}
void HostService::offers(std::uint64_t revision, std::vector<host::Offer> offers) {
  impl_->tell_manager(Offers{.revision = revision, .offers = std::move(offers)});
}

}  // namespace heddle::remote
