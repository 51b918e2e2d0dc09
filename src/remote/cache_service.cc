#include "remote/cache_service.h"

#include <deque>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "fetch/shared_cache.h"
#include "remote/cache_messages.h"
#include "remote/caller.h"

namespace heddle::remote {

namespace asio = boost::asio;

namespace {

using LinkId = Id<struct CacheLinkTag>;

/// Files that are read at once: a disk that is far away has several on their way.
constexpr std::size_t kReaders = 2;

AskId ask_of(const ToCache& wanted) {
  return std::visit([](const auto& ask) { return ask.ask; }, wanted);
}

FromCache answer_list(const fetch::SharedCache& cache, const ListCached& wanted) {
  const Result<fetch::Listing> listing = cache.list(wanted.model);
  if (!listing) {
    return CacheRefusal{.ask = wanted.ask, .error = listing.error()};
  }
  CachedFiles files{.ask = wanted.ask, .revision = listing->revision};
  for (const fetch::Object& object : listing->objects) {
    files.files.push_back({.name = object.name,
                           .bytes = object.bytes,
                           .sha256 = object.sha256,
                           .git_sha1 = object.git_sha1,
                           .validator = object.validator});
  }
  return files;
}

FromCache answer_read(fetch::SharedCache& cache, const ReadCached& wanted) {
  Result<std::string> bytes = cache.read({.model = wanted.model,
                                          .file = wanted.file,
                                          .bytes = wanted.file_bytes,
                                          .identity = wanted.identity,
                                          .range = {wanted.begin, wanted.begin + wanted.bytes}},
                                         steady_now());
  return bytes ? FromCache(CachedBytes{.ask = wanted.ask, .bytes = std::move(*bytes)})
               : FromCache(CacheRefusal{.ask = wanted.ask, .error = bytes.error()});
}

Error busy() {
  return {.code = Code::kUnavailable, .message = "what this host fetches itself goes first"};
}

}  // namespace

class CacheService::Impl : public std::enable_shared_from_this<CacheService::Impl> {
 public:
  Impl(asio::any_io_executor executor,
       store::ModelPlaces places,
       std::shared_ptr<agent::FetchLink> link,
       const CacheServiceOptions& options)
      : executor_(std::move(executor)),
        options_(options),
        link_(std::move(link)),
        cache_(std::make_shared<fetch::SharedCache>(std::move(places))),
        sweep_(executor_) {}

  void close() {
    closed_ = true;
    links_.clear();
    sweep_.cancel();
    stop_.request_stop();
    readers_.join();
  }

  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
    const LinkId id{++links_taken_};
    Link& one = links_[id];
    one.caller = std::make_unique<Caller>(
        executor_,
        std::move(link),
        peer,
        Caller::Handlers{
            .on_message = [this, id](const std::string& payload) { return hear(id, payload); },
            .on_gone = [this, id](const Error& /*why*/) { links_.erase(id); },
            .on_drained = [this, id] { read_next(id); }});
  }

  [[nodiscard]] std::uint64_t given_bytes() const { return given_; }

 private:
  struct Link {
    std::deque<ToCache> asks{};
    bool reading = false;
    std::unique_ptr<Caller> caller{};
  };

  Result<void> hear(LinkId id, const std::string& payload) {
    Result<ToCache> wanted = decode_to_cache(payload);
    if (!wanted) {
      return wanted.error();
    }
    Link& link = links_.at(id);
    if (link.asks.size() >= kAsksMost) {
      return Error{.code = Code::kCorrupt,
                   .message = "it waits for " + std::to_string(kAsksMost) +
                              " answers already, which is the most"};
    }
    link.asks.push_back(std::move(*wanted));
    read_next(id);
    return {};
  }

  /// Begins to read for the next ask of a link, unless it takes too little of what it was sent.
  void read_next(LinkId id) {
    const auto found = links_.find(id);
    if (closed_ || found == links_.end()) {
      return;
    }
    Link& link = found->second;
    if (link.reading || link.asks.empty() || link.caller->queued_bytes() >= options_.queued_full) {
      return;
    }
    link.reading = true;
    begin_read();
    asio::post(readers_,
               [self = shared_from_this(), id, wanted = std::move(link.asks.front())]() mutable {
                 FromCache answer = self->answer(wanted);
                 const asio::any_io_executor loop = self->executor_;
                 asio::post(loop, [self = std::move(self), id, answer = std::move(answer)] {
                   self->send(id, answer);
                   self->end_read();
                 });
               });
    link.asks.pop_front();
  }

  /// In a thread of the readers.
  FromCache answer(const ToCache& wanted) {
    const std::stop_token stop = stop_.get_token();
    if (const auto* list = std::get_if<ListCached>(&wanted)) {
      return answer_list(*cache_, *list);
    }
    if (!link_->turn(member_, stop, options_.patience)) {
      return CacheRefusal{.ask = ask_of(wanted), .error = busy()};
    }
    FromCache answer = answer_read(*cache_, std::get<ReadCached>(wanted));
    if (const auto* bytes = std::get_if<CachedBytes>(&answer)) {
      link_->took(member_, bytes->bytes.size(), stop);
    }
    return answer;
  }

  void send(LinkId id, const FromCache& answer) {
    const auto found = links_.find(id);
    if (closed_ || found == links_.end()) {
      return;
    }
    Link& link = found->second;
    link.reading = false;
    if (const auto* bytes = std::get_if<CachedBytes>(&answer)) {
      given_ += bytes->bytes.size();
    }
    link.caller->send(encode(answer));
    const auto* refusal = std::get_if<CacheRefusal>(&answer);
    if (refusal != nullptr && refusal->error.code == Code::kUnavailable) {
      for (const ToCache& wanted : std::exchange(link.asks, {})) {
        link.caller->send(
            encode(FromCache(CacheRefusal{.ask = ask_of(wanted), .error = refusal->error})));
      }
    }
    read_next(id);
  }

  /// Takes part in the host's link while something is read.
  void begin_read() {
    if (reads_++ == 0) {
      member_ = link_->join({});
    }
    if (!std::exchange(sweeps_, true)) {
      sweep_later();
    }
  }
  void end_read() {
    if (--reads_ == 0) {
      link_->leave(member_);
    }
  }

  void sweep_later() {
    sweep_.expires_after(options_.held);
    sweep_.async_wait([weak = weak_from_this()](const auto& stopped) {
      if (const std::shared_ptr<Impl> self = weak.lock(); self && !stopped && !self->closed_) {
        self->sweep();
      }
    });
  }
  void sweep() {
    sweeps_ = cache_->let_go(steady_now() - options_.held) || reads_ > 0;
    if (sweeps_) {
      sweep_later();
    }
  }

  const asio::any_io_executor executor_;
  const CacheServiceOptions options_;
  const std::shared_ptr<agent::FetchLink> link_;
  const std::shared_ptr<fetch::SharedCache> cache_;
  asio::steady_timer sweep_;
  bool closed_ = false;
  bool sweeps_ = false;
  std::size_t reads_ = 0;
  agent::FetchLink::Member member_{};  ///< While there are reads.
  std::uint64_t links_taken_ = 0;
  std::uint64_t given_ = 0;
  std::map<LinkId, Link> links_{};
  std::stop_source stop_{};
  asio::thread_pool readers_{kReaders};
};

CacheService::CacheService(asio::any_io_executor executor,
                           store::ModelPlaces places,
                           std::shared_ptr<agent::FetchLink> link,
                           const CacheServiceOptions& options)
    : impl_(std::make_shared<Impl>(
          std::move(executor), std::move(places), std::move(link), options)) {}

CacheService::~CacheService() {
  impl_->close();
}

void CacheService::take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
  impl_->take(std::move(link), peer);
}

std::uint64_t CacheService::given_bytes() const {
  return impl_->given_bytes();
}

}  // namespace heddle::remote
