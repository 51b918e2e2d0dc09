#include "cluster/etcd_registry.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cluster/etcd_wire.h"
#include "cluster/servers.h"
#include "cluster/stream_watch.h"

namespace heddle::cluster {

namespace asio = boost::asio;

namespace {

constexpr std::int64_t kEtcdPage = 64;  ///< Records in one answer.
constexpr std::size_t kEtcdBodyMax = 24U << 20U;
constexpr int kEtcdOk = 200;

http::Request etcd_request(std::string target, std::string body) {
  return {.method = "POST",
          .target = std::move(target),
          .body = std::move(body),
          .body_max = kEtcdBodyMax};
}

/// As others than this may have put it.
bool is_ours(const Record& record) {
  return check_record(record.key, record.value).has_value();
}

/// A record as its key is under the prefix; false where it is none of ours.
bool without_prefix(Record& record, std::string_view prefix) {
  if (!record.key.starts_with(prefix)) {
    return false;
  }
  record.key.erase(0, prefix.size());
  return is_ours(record);
}

class EtcdWatch final : public WatchSource {
 public:
  EtcdWatch(std::string root, const std::string& prefix)
      : root_(std::move(root)), first_(root_ + prefix), end_(etcd::end_of(first_)) {}

  [[nodiscard]] http::Request stream(Revision after) const override {
    return etcd_request("/v3/watch", etcd::watch_body(first_, end_, after + 1));
  }

  Heard hear(std::string_view line) override {
    Result<etcd::WatchLine> parsed = etcd::parse_watch_line(line);
    if (!parsed) {
      return {.broken = parsed.error().message};
    }
    if (parsed->compacted > 0) {
      return {.lost =
                  "it has forgotten changes before revision " + std::to_string(parsed->compacted)};
    }
    if (parsed->canceled) {
      return {.broken = "it ended the watch: " + parsed->reason};
    }
    if (fragments_.size() + parsed->changes.size() > kFragmentsMax) {
      return {.lost = "it tells of too many changes at once"};
    }
    const bool progress = parsed->changes.empty() && !parsed->created && !parsed->fragment;
    std::ranges::move(parsed->changes, std::back_inserter(fragments_));
    if (parsed->fragment) {
      return {};
    }
    Heard heard{.position = progress ? parsed->header.revision : 0};
    for (Change& each : std::exchange(fragments_, {})) {
      heard.position = std::max(heard.position, each.record.revision);
      if (without_prefix(each.record, root_)) {
        heard.changes.push_back(std::move(each));
      }
    }
    return heard;
  }

  [[nodiscard]] Heard refused(const http::Reply& reply) const override {
    return {.broken = "status " + std::to_string(reply.status) + " to a watch"};
  }

  [[nodiscard]] http::Request check() const override {
    return etcd_request(
        "/v3/kv/range",
        etcd::range_body({.first = first_, .end = end_, .limit = 1, .newest_first = true}));
  }

  [[nodiscard]] Result<StoreState> checked(const http::Reply& reply) const override {
    const Result<etcd::Range> range = etcd::parse_range(reply.body);
    if (!range) {
      return range.error();
    }
    return StoreState{.store = range->header.cluster,
                      .revision = range->header.revision,
                      .newest = range->records.empty() ? 0 : range->records.front().revision};
  }

 private:
  static constexpr std::size_t kFragmentsMax = 10'000;

  std::string root_;
  std::string first_;
  std::string end_;
  std::vector<Change> fragments_{};  ///< Of one answer, which has not ended yet.
};

class EtcdRegistry final : public Registry {
 public:
  EtcdRegistry(std::shared_ptr<Servers> servers, std::string root)
      : servers_(std::move(servers)), root_(std::move(root)) {}

  asio::awaitable<Result<std::optional<Record>>> get(std::string key) override {
    if (const Result<void> checked = check_key(key); !checked) {
      co_return checked.error();
    }
    const std::string full = root_ + key;
    const etcd::RangeQuery query{.first = full};
    Result<etcd::Range> range = co_await ask_range(query);
    if (!range) {
      co_return range.error();
    }
    if (range->records.empty()) {
      co_return std::optional<Record>();
    }
    Record& found = range->records.front();
    if (found.key != full || !without_prefix(found, root_)) {
      co_return Error{Code::kCorrupt,
                      name() + ": record \"" + key + "\" was not put by heddle: it has " +
                          std::to_string(found.value.size()) + " bytes"};
    }
    co_return std::optional<Record>(std::move(found));
  }

  asio::awaitable<Result<Listing>> list(std::string prefix) override {
    std::string first = root_ + prefix;
    const std::string end = etcd::end_of(first);
    Listing listing;
    for (;;) {
      const etcd::RangeQuery query{
          .first = first, .end = end, .limit = kEtcdPage, .at = listing.revision};
      Result<etcd::Range> range = co_await ask_range(query);
      if (!range) {
        co_return range.error();
      }
      if (listing.revision == 0) {
        listing.revision = range->header.revision;
      }
      const bool stands = range->records.empty() || range->records.back().key < first;
      if (range->more && (stands || listing.records.size() > kListMax)) {
        co_return Error{Code::kCorrupt, name() + ": its list of records does not end"};
      }
      if (!range->records.empty()) {
        first = range->records.back().key + '\0';
      }
      for (Record& each : range->records) {
        if (without_prefix(each, root_)) {
          listing.records.push_back(std::move(each));
        }
      }
      if (!range->more) {
        co_return listing;
      }
    }
  }

  asio::awaitable<Result<Revision>> put_if(std::string key,
                                           Revision expected,
                                           std::string value,
                                           Duration life) override {
    if (const Result<void> checked = check_record(key, value); !checked) {
      co_return checked.error();
    }
    std::string lease;
    if (life > Duration::zero()) {
      Result<std::string> granted = co_await lease_of(key, life);
      if (!granted) {
        co_return granted.error();
      }
      lease = std::move(*granted);
    }
    const std::string body = etcd::put_body(root_ + key, expected, value, lease);
    bool unsure = false;
    const Result<etcd::Txn> txn = co_await ask_txn(body, unsure);
    if (!txn) {
      leases_.erase(key);  // It may have been the lease that is no more.
      co_return txn.error();
    }
    if (txn->succeeded) {
      co_return txn->header.revision;
    }
    const bool by_us =
        unsure && txn->present && txn->present->value == value && txn->present->revision > expected;
    co_return by_us ? Result<Revision>(txn->present->revision) : refused(key, expected, *txn);
  }

  asio::awaitable<Result<void>> remove_if(std::string key, Revision expected) override {
    if (const Result<void> checked = check_key(key); !checked) {
      co_return checked.error();
    }
    bool unsure = false;
    const std::string body = etcd::remove_body(root_ + key, expected);
    const Result<etcd::Txn> txn = co_await ask_txn(body, unsure);
    if (!txn) {
      co_return txn.error();
    }
    const bool done = expected != 0 && (txn->succeeded || (unsure && !txn->present));
    if (done) {
      leases_.erase(key);
    }
    co_return done ? Result<void>() : refused(key, expected, *txn);
  }

  std::unique_ptr<Watch> watch(std::string prefix, Revision after, WatchHandler handler) override {
    return watch_stream(
        servers_, std::make_unique<EtcdWatch>(root_, prefix), cluster_, after, std::move(handler));
  }

  [[nodiscard]] const std::string& name() const override { return servers_->name(); }

 private:
  [[nodiscard]] Error refused(const std::string& key, Revision expected, const etcd::Txn& txn) {
    const Revision present = txn.present ? txn.present->revision : 0;
    return {Code::kFailedPrecondition,
            name() + ": record \"" + key + "\" has revision " + std::to_string(present) +
                " instead of " + std::to_string(expected)};
  }

  [[nodiscard]] Error of(const Error& why) const { return {why.code, name() + ": " + why.message}; }

  asio::awaitable<Result<etcd::Range>> ask_range(etcd::RangeQuery query) {
    http::Request request = etcd_request("/v3/kv/range", etcd::range_body(query));
    const Result<Answer> answer = co_await servers_->ask(std::move(request));
    if (!answer) {
      co_return answer.error();
    }
    Result<etcd::Range> range = etcd::parse_range(answer->reply.body);
    if (!range) {
      co_return explain(answer->reply, range.error());
    }
    cluster_ = range->header.cluster;
    co_return range;
  }

  asio::awaitable<Result<etcd::Txn>> ask_txn(std::string body, bool& unsure) {
    http::Request request = etcd_request("/v3/kv/txn", std::move(body));
    const Result<Answer> answer = co_await servers_->ask(std::move(request));
    if (!answer) {
      co_return answer.error();
    }
    unsure = answer->unsure;
    Result<etcd::Txn> txn = etcd::parse_txn(answer->reply.body);
    if (!txn) {
      co_return explain(answer->reply, txn.error());
    }
    co_return txn;
  }

  /// What is wrong with an answer that no server gives where all is well.
  [[nodiscard]] Error explain(const http::Reply& reply, const Error& why) const {
    constexpr int kNoSuchPath = 404;
    if (reply.status == kNoSuchPath) {
      return {Code::kUnavailable,
              name() + ": it has no /v3/kv; right is the client port of etcd 3.4 or later"};
    }
    return reply.status == kEtcdOk
               ? of(why)
               : of({why.code, "status " + std::to_string(reply.status) + ": " + why.message});
  }

  /// The lease that the record hangs on, from now on for so long.
  asio::awaitable<Result<std::string>> lease_of(std::string key, Duration life) {
    const auto known = leases_.find(key);
    if (known != leases_.end() && known->second.life == life) {
      const std::string id = known->second.id;
      http::Request request = etcd_request("/v3/lease/keepalive", etcd::keep_alive_body(id));
      const Result<Answer> answer = co_await servers_->ask(std::move(request));
      if (!answer) {
        co_return answer.error();
      }
      const Result<etcd::Lease> lease = etcd::parse_keep_alive(answer->reply.body);
      if (lease && lease->seconds > 0) {
        co_return id;
      }
    }
    const std::int64_t seconds = std::chrono::ceil<std::chrono::seconds>(life).count();
    http::Request request = etcd_request("/v3/lease/grant", etcd::grant_body(seconds));
    const Result<Answer> answer = co_await servers_->ask(std::move(request));
    if (!answer) {
      co_return answer.error();
    }
    Result<etcd::Lease> lease = etcd::parse_lease(answer->reply.body);
    if (!lease) {
      co_return explain(answer->reply, lease.error());
    }
    leases_[key] = {.id = lease->id, .life = life};
    co_return std::move(lease->id);
  }

  struct LifeLease {
    std::string id{};
    Duration life{};
  };

  std::shared_ptr<Servers> servers_;
  std::string root_;
  std::string cluster_{};                      ///< The id of the one that answered last.
  std::map<std::string, LifeLease> leases_{};  ///< Of the records put here, by key.
};

}  // namespace

Result<std::shared_ptr<Registry>> open_etcd(const asio::any_io_executor& executor,
                                            const EtcdUrl& url,
                                            RegistryOptions options) {
  std::string name = "etcd at ";
  for (const HttpAddress& each : url.servers) {
    name += (&each == &url.servers.front() ? "" : ", ") + each.authority();
  }
  const http::ClientOptions access{
      .access = {.ca = url.ca, .certificate = url.certificate, .key = url.key},
      .user_agent = "heddle",
      .keep_alive = true};
  auto servers = std::make_shared<Servers>(
      executor, std::move(name), url.servers, [access] { return access; }, options);
  return std::shared_ptr<Registry>(std::make_shared<EtcdRegistry>(std::move(servers), url.prefix));
}

}  // namespace heddle::cluster
