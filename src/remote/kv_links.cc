#include "remote/kv_links.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/wire.h"
#include "remote/caller.h"
#include "rpc/link_fields.h"

namespace heddle::remote {

namespace asio = boost::asio;

namespace {

using KvMessage = std::variant<rpc::KvAsk, rpc::KvGiven>;
using TakenId = Id<struct KvTakenTag>;

/// Most asks of another host that wait for their answers.
constexpr std::size_t kAsksMost = 1024;

}  // namespace

class KvLinks::Impl : public std::enable_shared_from_this<KvLinks::Impl> {
 public:
  Impl(asio::any_io_executor executor,
       net::Self self,
       std::function<void(rpc::KvAsk, agent::KvAnswer)> give,
       const KvLinksOptions& options)
      : executor_(std::move(executor)),
        self_(std::move(self)),
        give_(std::move(give)),
        options_(options) {
    self_.use = rpc::LinkUse::kKv;
  }

  void close() {
    closed_ = true;
    taken_.clear();
    links_.clear();
  }

  // ---- What is asked of others ----

  void ask(const rpc::KvAsk& ask, agent::KvAnswer answer) {
    Link& link = link_to(ask.from.host);
    const std::uint64_t number = ++link.asked;
    link.asks[number] = {.ask = ask.ask, .begin = ask.begin, .answer = std::move(answer)};
    if (link.asks.size() == 1) {
      wait(ask.from.host.name, link);
    }
    rpc::KvAsk sent = ask;
    sent.ask = number;
    std::string message = wire::encode(KvMessage(std::move(sent)));
    if (!link.up) {
      link.unsent.push_back(std::move(message));
    } else if (!link.connector->send(std::move(message))) {
      end_later(ask.from.host.name);
    }
  }

  // ---- What others ask ----

  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
    const TakenId id{++taken_count_};
    Taken& one = taken_[id];
    one.caller = std::make_unique<Caller>(
        executor_,
        std::move(link),
        peer,
        Caller::Handlers{
            .on_message = [this, id](const std::string& payload) { return asked(id, payload); },
            .on_gone = [this, id](const Error& /*why*/) { taken_.erase(id); }});
  }

 private:
  struct Open {
    std::uint64_t ask = 0;  ///< As whoever asks has it.
    std::int64_t begin = 0;
    agent::KvAnswer answer{};
  };
  struct Link {
    explicit Link(const asio::any_io_executor& executor) : patience(executor) {}
    bool up = false;
    std::vector<std::string> unsent{};     ///< Until it is up.
    std::map<std::uint64_t, Open> asks{};  ///< By the number that the host was told.
    std::uint64_t asked = 0;
    asio::steady_timer patience;  ///< With its silence, or its lack of use.
    std::unique_ptr<net::Connector> connector{};
  };
  struct Taken {
    std::size_t open = 0;  ///< Asks without an answer.
    std::unique_ptr<Caller> caller{};
  };

  Link& link_to(const core::GroupHost& host) {
    std::unique_ptr<Link>& link = links_[host.name];
    if (link) {
      return *link;
    }
    link = std::make_unique<Link>(executor_);
    link->connector = std::make_unique<net::Connector>(
        executor_,
        net::Address{.host = host.address, .port = host.port},
        self_,
        net::Wanted{.roles = {net::Role::kAgent}, .name = host.name},
        net::Connector::Handlers{
            .on_up = [this, name = host.name](const net::Peer& /*peer*/) { came_up(name); },
            .on_down = [this, name = host.name](const Error& /*why*/) { end(name); },
            .on_frame = [this,
                         name = host.name](const rpc::Frame& frame) { hear(name, frame.payload); }},
        options_.connector);
    return *link;
  }

  void wait(const std::string& name, Link& link) {
    link.patience.expires_after(link.asks.empty() ? options_.idle : options_.silence);
    link.patience.async_wait([weak = weak_from_this(), name](const auto& stopped) {
      const std::shared_ptr<Impl> self = weak.lock();
      if (self && !stopped && self->links_.contains(name) &&
          self->links_.at(name)->patience.expiry() <= asio::steady_timer::clock_type::now()) {
        self->end(name);
      }
    });
  }

  void came_up(const std::string& name) {
    Link& link = *links_.at(name);
    link.up = true;
    for (std::string& message : std::exchange(link.unsent, {})) {
      if (!link.connector->send(std::move(message))) {
        end(name);
        return;
      }
    }
  }

  void hear(const std::string& name, const std::string& payload) {
    Link& link = *links_.at(name);
    Result<KvMessage> message = wire::decode<KvMessage>(payload);
    auto* given = message ? std::get_if<rpc::KvGiven>(&*message) : nullptr;
    const auto found = given == nullptr ? link.asks.end() : link.asks.find(given->ask);
    if (found == link.asks.end()) {
      end(name);
      return;
    }
    Open open = std::move(link.asks.extract(found).mapped());
    wait(name, link);
    given->ask = open.ask;
    open.answer(std::move(*given));
  }

  void end_later(const std::string& name) {
    asio::post(executor_, [weak = weak_from_this(), name] {
      if (const std::shared_ptr<Impl> self = weak.lock()) {
        self->end(name);
      }
    });
  }

  /// Whoever waits gets nothing. The next ask makes a new link.
  void end(const std::string& name) {
    const auto found = links_.find(name);
    if (closed_ || found == links_.end()) {
      return;
    }
    const std::unique_ptr<Link> link = std::move(links_.extract(found).mapped());
    if (link->up) {
      link->connector->end("it has not answered in time, or not what it was asked");
    }
    for (const auto& [number, open] : link->asks) {
      open.answer({.ask = open.ask, .begin = open.begin, .end = open.begin});
    }
  }

  Result<void> asked(TakenId id, const std::string& payload) {
    Result<KvMessage> message = wire::decode<KvMessage>(payload);
    if (!message) {
      return message.error();
    }
    auto* ask = std::get_if<rpc::KvAsk>(&*message);
    Taken& taken = taken_.at(id);
    if (ask == nullptr || taken.open >= kAsksMost) {
      return Error{.code = Code::kCorrupt,
                   .message = "it has to ask for KV, and wait for " + std::to_string(kAsksMost) +
                              " answers at most"};
    }
    ++taken.open;
    ask->from.host = {};  // It is this one.
    give_(std::move(*ask), [weak = weak_from_this(), id](rpc::KvGiven given) {
      if (const std::shared_ptr<Impl> self = weak.lock()) {
        self->answer(id, std::move(given));
      }
    });
    return {};
  }

  void answer(TakenId id, rpc::KvGiven given) {
    const auto found = taken_.find(id);
    if (!closed_ && found != taken_.end()) {
      --found->second.open;
      found->second.caller->send(wire::encode(KvMessage(std::move(given))));
    }
  }

  const asio::any_io_executor executor_;
  net::Self self_;
  const std::function<void(rpc::KvAsk, agent::KvAnswer)> give_;
  const KvLinksOptions options_;
  bool closed_ = false;
  std::map<std::string, std::unique_ptr<Link>> links_{};  ///< By the host's name.
  std::uint64_t taken_count_ = 0;
  std::map<TakenId, Taken> taken_{};
};

KvLinks::KvLinks(asio::any_io_executor executor,
                 net::Self self,
                 std::function<void(rpc::KvAsk, agent::KvAnswer)> give,
                 const KvLinksOptions& options)
    : impl_(
          std::make_shared<Impl>(std::move(executor), std::move(self), std::move(give), options)) {}

KvLinks::~KvLinks() {
  impl_->close();
}

void KvLinks::ask(const rpc::KvAsk& ask, agent::KvAnswer answer) {
  impl_->ask(ask, std::move(answer));
}

void KvLinks::take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
  impl_->take(std::move(link), peer);
}

}  // namespace heddle::remote
