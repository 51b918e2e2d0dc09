#include "remote/peer_caches.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "fetch/url.h"
#include "remote/cache_messages.h"

namespace heddle::remote {

namespace asio = boost::asio;

namespace {

/// Asks of one read that wait for their answers.
constexpr std::size_t kAhead = 4;

/// An ask that somebody waits for in another thread.
class Ask {
 public:
  void answer(Result<FromCache> answer) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
    answered_.notify_all();
  }
  /// What was answered; an error where that was a refusal; kCancelled after a stop.
  Result<FromCache> await(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!answered_.wait(lock, stop, [this] { return answer_.has_value(); })) {
      return Error{Code::kCancelled, "stopped"};
    }
    if (const auto* refusal = *answer_ ? std::get_if<CacheRefusal>(&**answer_) : nullptr) {
      Error error = refusal->error;
      error.code = error.code == Code::kCancelled ? Code::kUnavailable : error.code;
      return error;
    }
    return std::move(*answer_);
  }

 private:
  std::mutex mutex_{};
  std::condition_variable_any answered_{};
  std::optional<Result<FromCache>> answer_{};  // Guarded by mutex_.
};

AskId ask_of(const FromCache& answer) {
  return std::visit([](const auto& said) { return said.ask; }, answer);
}

Error no_answer() {
  return {.code = Code::kCorrupt, .message = "it answers something else than it was asked"};
}

}  // namespace

class PeerCaches::Impl : public std::enable_shared_from_this<PeerCaches::Impl> {
 public:
  Impl(asio::any_io_executor executor, net::Self self, const PeerCachesOptions& options)
      : executor_(std::move(executor)), self_(std::move(self)), options_(options) {
    self_.use = rpc::LinkUse::kFiles;
  }

  void close() {
    closed_ = true;
    while (!links_.empty()) {
      end(links_.begin()->first,
          {.code = Code::kUnavailable, .message = "this host asks nobody any more"});
    }
  }

  // ---- Any thread ----

  std::shared_ptr<Ask> ask(const core::GroupHost& host, ToCache wanted) {
    auto ask = std::make_shared<Ask>();
    asio::post(executor_,
               [self = shared_from_this(), host, ask, wanted = std::move(wanted)]() mutable {
                 self->begin(host, std::move(ask), std::move(wanted));
               });
    return ask;
  }
  void distrust(const std::string& host, const std::string& model) {
    const std::lock_guard lock(mutex_);
    distrusted_.emplace(host, model);
  }
  [[nodiscard]] bool trusts(const std::string& host, const std::string& model) {
    const std::lock_guard lock(mutex_);
    return !distrusted_.contains({host, model});
  }

 private:
  struct Link {
    explicit Link(const asio::any_io_executor& executor) : patience(executor) {}
    bool up = false;
    std::vector<std::string> unsent{};  ///< Until it is up.
    std::map<AskId, std::shared_ptr<Ask>> asks{};
    std::uint64_t asked = 0;
    asio::steady_timer patience;  ///< With its silence, or its lack of use.
    std::unique_ptr<net::Connector> connector{};
  };

  void begin(const core::GroupHost& host, std::shared_ptr<Ask> ask, ToCache wanted) {
    if (closed_) {
      ask->answer(Error{.code = Code::kUnavailable, .message = "this host asks nobody any more"});
      return;
    }
    Link& link = link_to(host);
    const AskId id{++link.asked};
    std::visit([&](auto& message) { message.ask = id; }, wanted);
    link.asks[id] = std::move(ask);
    if (link.asks.size() == 1) {
      wait(host.name, link);
    }
    std::string message = encode(wanted);
    if (!link.up) {
      link.unsent.push_back(std::move(message));
    } else if (const Result<void> sent = link.connector->send(std::move(message)); !sent) {
      end(host.name, sent.error());
    }
  }

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
            .on_down = [this, name = host.name](const Error& why) { end(name, why); },
            .on_frame = [this,
                         name = host.name](const rpc::Frame& frame) { hear(name, frame.payload); }},
        options_.connector);
    return *link;
  }

  /// From now on it has so much time.
  void wait(const std::string& name, Link& link) {
    link.patience.expires_after(link.asks.empty() ? options_.idle : options_.silence);
    link.patience.async_wait([weak = weak_from_this(), name](const auto& stopped) {
      const std::shared_ptr<Impl> self = weak.lock();
      if (self && !stopped && self->links_.contains(name) &&
          self->links_.at(name)->patience.expiry() <= asio::steady_timer::clock_type::now()) {
        self->end(name, {.code = Code::kUnavailable, .message = "it has not answered in time"});
      }
    });
  }

  void came_up(const std::string& name) {
    Link& link = *links_.at(name);
    link.up = true;
    for (std::string& message : std::exchange(link.unsent, {})) {
      if (const Result<void> sent = link.connector->send(std::move(message)); !sent) {
        end(name, sent.error());
        return;
      }
    }
  }

  void hear(const std::string& name, const std::string& payload) {
    Link& link = *links_.at(name);
    Result<FromCache> answer = decode_from_cache(payload);
    const auto found = answer ? link.asks.find(ask_of(*answer)) : link.asks.end();
    if (found == link.asks.end()) {
      end(name, answer ? no_answer() : answer.error());
      return;
    }
    found->second->answer(std::move(answer));
    link.asks.erase(found);
    wait(name, link);
  }

  /// Whoever waits hears why. The next ask makes a new link.
  void end(std::string name, Error why) {
    const std::unique_ptr<Link> link = std::move(links_.extract(name).mapped());
    for (const auto& [id, ask] : link->asks) {
      ask->answer(why);
    }
    if (link->up) {
      link->connector->end(why.message);
    }
  }

  const asio::any_io_executor executor_;
  net::Self self_;
  const PeerCachesOptions options_;
  bool closed_ = false;
  std::map<std::string, std::unique_ptr<Link>> links_{};  ///< By the host's name.

  std::mutex mutex_{};
  std::set<std::pair<std::string, std::string>> distrusted_{};  // Guarded by mutex_.
};

/// The cache of one host.
class PeerCaches::CachePeer final : public fetch::Peer {
 public:
  CachePeer(std::shared_ptr<Impl> owner, core::GroupHost host)
      : owner_(std::move(owner)), host_(std::move(host)) {}

  [[nodiscard]] const std::string& name() const override { return host_.name; }

  Result<fetch::Listing> list(const std::string& model, const std::stop_token& stop) override {
    if (const Result<void> may = may_ask(model); !may) {
      return may.error();
    }
    Result<FromCache> answer = owner_->ask(host_, ListCached{.model = model})->await(stop);
    auto* files = answer ? std::get_if<CachedFiles>(&*answer) : nullptr;
    if (files == nullptr) {
      return answer ? no_answer() : answer.error();
    }
    fetch::Listing listing{.revision = std::move(files->revision)};
    for (CachedFile& file : files->files) {
      if (!fetch::stays_below(file.name)) {
        return Error{Code::kCorrupt, "it has a file that lies outside the model's folder"};
      }
      listing.objects.push_back({.name = std::move(file.name),
                                 .bytes = file.bytes,
                                 .sha256 = std::move(file.sha256),
                                 .git_sha1 = std::move(file.git_sha1),
                                 .validator = std::move(file.validator)});
    }
    return listing;
  }

  Result<void> read(const std::string& model,
                    const fetch::Object& object,
                    fetch::Range range,
                    const fetch::Sink& sink,
                    const std::stop_token& stop) override {
    if (Result<void> may = may_ask(model); !may) {
      return may;
    }
    std::deque<std::shared_ptr<Ask>> asks;
    std::uint64_t asked = range.begin;
    std::uint64_t at = range.begin;
    while (at < range.end) {
      while (asks.size() < kAhead && asked < range.end) {
        const std::uint64_t bytes = piece_at(asked, range);
        asks.push_back(owner_->ask(host_, wanted(model, object, asked, bytes)));
        asked += bytes;
      }
      const Result<FromCache> answer = asks.front()->await(stop);
      asks.pop_front();
      const auto* piece = answer ? std::get_if<CachedBytes>(&*answer) : nullptr;
      if (piece == nullptr || piece->bytes.size() != piece_at(at, range)) {
        return answer ? no_answer() : answer.error();
      }
      if (Result<void> taken = sink(at, std::as_bytes(std::span(piece->bytes))); !taken) {
        return taken;
      }
      at += piece->bytes.size();
    }
    return {};
  }

  void distrust(const std::string& model) override { owner_->distrust(host_.name, model); }

 private:
  [[nodiscard]] Result<void> may_ask(const std::string& model) const {
    return owner_->trusts(host_.name, model)
               ? Result<void>()
               : Error{Code::kFailedPrecondition, "it gave wrong bytes of this model"};
  }
  static std::uint64_t piece_at(std::uint64_t at, fetch::Range range) {
    return std::min<std::uint64_t>(kCachePieceMost, range.end - at);
  }
  static ReadCached wanted(const std::string& model,
                           const fetch::Object& object,
                           std::uint64_t at,
                           std::uint64_t bytes) {
    return {.model = model,
            .file = object.name,
            .file_bytes = object.bytes,
            .identity = object.identity(),
            .begin = at,
            .bytes = bytes};
  }

  const std::shared_ptr<Impl> owner_;
  const core::GroupHost host_;
};

PeerCaches::PeerCaches(asio::any_io_executor executor,
                       net::Self self,
                       const PeerCachesOptions& options)
    : impl_(std::make_shared<Impl>(std::move(executor), std::move(self), options)) {}

PeerCaches::~PeerCaches() {
  impl_->close();
}

std::shared_ptr<fetch::Peer> PeerCaches::peer(const core::GroupHost& host) const {
  return std::make_shared<CachePeer>(impl_, host);
}

}  // namespace heddle::remote
