#include "cluster/kubernetes_registry.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "cluster/kubernetes_wire.h"
#include "cluster/reaper.h"
#include "cluster/servers.h"
#include "cluster/stream_watch.h"

namespace heddle::cluster {

namespace asio = boost::asio;
namespace wire = kubernetes;

namespace {

constexpr std::size_t kObjectBodyMax = 4U << 20U;
constexpr std::size_t kPageBodyMax = 24U << 20U;
constexpr std::string_view kPageSize = "64";
constexpr int kPagesMax = static_cast<int>(kListMax / 64);
/// After so long the API server ends a watch, and it is opened again.
constexpr std::string_view kWatchSeconds = "300";
constexpr std::size_t kObjectNameMax = 253;
constexpr std::size_t kTokenMax = 64U << 10U;
constexpr std::string_view kAccount = "/var/run/secrets/kubernetes.io/serviceaccount/";

enum Status : int {
  kOk = 200,
  kCreated = 201,
  kUnauthorized = 401,
  kForbidden = 403,
  kAbsent = 404,
  kConflict = 409,
  kGone = 410,
};

/// The collection of all records of a registry.
struct Place {
  std::string path{};   ///< Of the Leases of the namespace.
  std::string group{};  ///< Value of their label, and begin of their names.

  [[nodiscard]] std::string selected() const {
    std::string label(wire::kLabel);
    label.replace(label.find('/'), 1, "%2F");
    return path + "?labelSelector=" + label + "%3D" + group;
  }
};

/// Why the API server does not do what it was asked.
Error refusal(const http::Reply& reply) {
  const std::string text =
      "status " + std::to_string(reply.status) + ": " + wire::message_of(reply.body);
  if (reply.status == kUnauthorized || reply.status == kForbidden) {
    return {Code::kUnavailable,
            text +
                "; the service account needs get, list, watch, create, update and delete on "
                "leases of coordination.k8s.io"};
  }
  return {Code::kUnavailable, text};
}

/// What the reaper is told.
using Note = std::function<void(const std::string& key, Revision revision, Duration life)>;

class KubernetesWatch final : public WatchSource {
 public:
  KubernetesWatch(Place place, std::string prefix, Note note)
      : place_(std::move(place)), prefix_(std::move(prefix)), note_(std::move(note)) {}

  [[nodiscard]] http::Request stream(Revision after) const override {
    return {.target = place_.selected() + "&watch=1&allowWatchBookmarks=true&timeoutSeconds=" +
                      std::string(kWatchSeconds) + "&resourceVersion=" + std::to_string(after)};
  }

  Heard hear(std::string_view line) override {
    Result<wire::Event> event = wire::parse_event(line);
    if (!event) {
      return {.broken = event.error().message};
    }
    if (event->kind == wire::Event::Kind::kError) {
      const std::string why = "status " + std::to_string(event->code) + ": " + event->message;
      return event->code == kGone ? Heard{.lost = why} : Heard{.broken = why};
    }
    Heard heard{.position = event->object.revision};
    const auto key = wire::key_of(place_.group, event->object.name);
    const bool removed = event->kind == wire::Event::Kind::kRemoved;
    if (!key || (!event->is_record && !removed)) {
      return heard;
    }
    note_(*key, event->object.revision, removed ? Duration::zero() : event->object.life);
    if (key->starts_with(prefix_)) {
      heard.changes.push_back(
          {.kind = removed ? Change::Kind::kRemoved : Change::Kind::kPut,
           .record = {.key = *key,
                      .value = removed ? std::string() : std::move(event->object.value),
                      .revision = event->object.revision}});
    }
    return heard;
  }

  [[nodiscard]] Heard refused(const http::Reply& reply) const override {
    const std::string why = refusal(reply).message;
    return reply.status == kGone ? Heard{.lost = why} : Heard{.broken = why};
  }

  [[nodiscard]] http::Request check() const override {
    return {.target = place_.selected() + "&limit=1"};
  }

  [[nodiscard]] Result<StoreState> checked(const http::Reply& reply) const override {
    if (reply.status != kOk) {
      return refusal(reply);
    }
    const Result<wire::Page> page = wire::parse_page(reply.body);
    return page ? Result<StoreState>(StoreState{.revision = page->revision}) : page.error();
  }

 private:
  Place place_;
  std::string prefix_;
  Note note_;
};

class KubernetesRegistry final : public Registry {
 public:
  KubernetesRegistry(std::shared_ptr<Servers> servers, Place place)
      : servers_(std::move(servers)), place_(std::move(place)), reaper_(servers_->executor()) {}

  void start() { reaper_.serve(weak_from_this()); }

  asio::awaitable<Result<std::optional<Record>>> get(std::string key) override {
    const Result<std::string> path = path_of(key);
    if (!path) {
      co_return path.error();
    }
    http::Request request{.target = *path, .body_max = kObjectBodyMax};
    const Result<Answer> answer = co_await servers_->ask(std::move(request));
    if (!answer) {
      co_return answer.error();
    }
    if (answer->reply.status == kAbsent) {
      reaper_.forget(key);
      co_return std::optional<Record>();
    }
    Result<Record> record = record_of(key, answer->reply);
    co_return record ? Result<std::optional<Record>>(std::move(*record)) : record.error();
  }

  asio::awaitable<Result<Listing>> list(std::string prefix) override {
    Listing listing;
    std::string next;
    int pages = 0;
    do {
      const std::string target = place_.selected() + "&limit=" + std::string(kPageSize) +
                                 (next.empty() ? "" : "&continue=" + escaped(next));
      http::Request request{.target = target, .body_max = kPageBodyMax};
      const Result<Answer> answer = co_await servers_->ask(std::move(request));
      if (!answer) {
        co_return answer.error();
      }
      if (answer->reply.status != kOk) {
        co_return of(refusal(answer->reply));
      }
      Result<wire::Page> page = wire::parse_page(answer->reply.body);
      if (!page) {
        co_return of(page.error());
      }
      listing.revision = listing.revision == 0 ? page->revision : listing.revision;
      for (wire::Object& each : page->objects) {
        add(listing, prefix, each);
      }
      next = std::move(page->next);
      if (!next.empty() && ++pages > kPagesMax) {
        co_return of({Code::kCorrupt, "its list of leases does not end"});
      }
    } while (!next.empty());
    std::ranges::sort(listing.records, {}, &Record::key);
    co_return listing;
  }

  asio::awaitable<Result<Revision>> put_if(std::string key,
                                           Revision expected,
                                           std::string value,
                                           Duration life) override {
    const Result<std::string> path = path_of(key);
    const Result<void> checked = check_record(key, value);
    if (!path || !checked) {
      co_return checked ? path.error() : checked.error();
    }
    const wire::Object object{
        .name = wire::name_of(place_.group, key), .value = value, .life = life};
    http::Request request{.method = expected == 0 ? "POST" : "PUT",
                          .target = expected == 0 ? place_.path : *path,
                          .body = wire::write_object(object, place_.group, expected),
                          .body_max = kObjectBodyMax};
    const Result<Answer> answer = co_await servers_->ask(std::move(request));
    if (!answer) {
      co_return answer.error();
    }
    const int status = answer->reply.status;
    if (status == kConflict || (status == kAbsent && expected != 0)) {
      Result<Revision> present = co_await revision_put(answer->unsure, key, value, expected);
      co_return present;
    }
    const Result<Record> put = record_of(key, answer->reply);
    co_return put ? Result<Revision>(put->revision) : put.error();
  }

  asio::awaitable<Result<void>> remove_if(std::string key, Revision expected) override {
    const Result<std::string> path = path_of(key);
    if (!path) {
      co_return path.error();
    }
    http::Request request{.method = "DELETE",
                          .target = *path,
                          .body = wire::delete_body(expected),
                          .body_max = kObjectBodyMax};
    const Result<Answer> answer = co_await servers_->ask(std::move(request));
    if (!answer) {
      co_return answer.error();
    }
    const int status = answer->reply.status;
    if (status == kOk || (status == kAbsent && answer->unsure)) {
      reaper_.forget(key);
      co_return Result<void>();
    }
    const bool differs = status == kConflict || status == kAbsent;
    co_return differs ? differing(key, expected) : of(refusal(answer->reply));
  }

  std::unique_ptr<Watch> watch(std::string prefix, Revision after, WatchHandler handler) override {
    auto source = std::make_unique<KubernetesWatch>(place_, std::move(prefix), note());
    return watch_stream(servers_, std::move(source), "", after, std::move(handler));
  }

  [[nodiscard]] const std::string& name() const override { return servers_->name(); }

 private:
  [[nodiscard]] Error of(const Error& why) const { return {why.code, name() + ": " + why.message}; }
  [[nodiscard]] Error differing(const std::string& key, Revision expected) const {
    return {Code::kFailedPrecondition,
            name() + ": record \"" + key + "\" does not have revision " + std::to_string(expected)};
  }

  /// What may stand in a query.
  static std::string escaped(std::string_view text) {
    constexpr std::string_view kHexDigits = "0123456789ABCDEF";
    std::string out;
    for (const char each : text) {
      const auto byte = static_cast<unsigned char>(each);
      if (std::isalnum(byte) != 0) {
        out += each;
      } else {
        out += {'%', kHexDigits[byte >> 4U], kHexDigits[byte & 15U]};
      }
    }
    return out;
  }

  [[nodiscard]] Result<std::string> path_of(const std::string& key) const {
    if (const Result<void> checked = check_key(key); !checked) {
      return checked.error();
    }
    const std::string object = wire::name_of(place_.group, key);
    if (object.size() > kObjectNameMax) {
      return Error{Code::kInvalidArgument,
                   "key \"" + key + "\" makes a name of " + std::to_string(object.size()) +
                       " bytes; Kubernetes allows " + std::to_string(kObjectNameMax)};
    }
    return place_.path + "/" + object;
  }

  /// Tells the reaper, as long as this lives.
  Note note() {
    return
        [this, weak = weak_from_this()](const std::string& key, Revision revision, Duration life) {
          if (const std::shared_ptr<Registry> alive = weak.lock()) {
            reaper_.saw(key, revision, life);
          }
        };
  }

  [[nodiscard]] Result<Record> record_of(const std::string& key, const http::Reply& reply) {
    if (reply.status != kOk && reply.status != kCreated) {
      return of(refusal(reply));
    }
    Result<wire::Object> object = wire::parse_object(reply.body);
    if (!object) {
      return of(object.error());
    }
    if (object->name != wire::name_of(place_.group, key)) {
      return of({Code::kCorrupt, "it gives another lease than " + key + ": " + object->name});
    }
    reaper_.saw(key, object->revision, object->life);
    return Record{.key = key, .value = std::move(object->value), .revision = object->revision};
  }

  void add(Listing& listing, const std::string& prefix, wire::Object& object) {
    std::optional<std::string> key = wire::key_of(place_.group, object.name);
    if (!key) {
      return;
    }
    reaper_.saw(*key, object.revision, object.life);
    if (key->starts_with(prefix)) {
      listing.records.push_back(
          {.key = std::move(*key), .value = std::move(object.value), .revision = object.revision});
    }
  }

  /// Where the record is another than expected: its revision if an earlier try of ours has put it.
  asio::awaitable<Result<Revision>> revision_put(bool unsure,
                                                 std::string key,
                                                 std::string value,
                                                 Revision expected) {
    if (unsure) {
      const Result<std::optional<Record>> present = co_await get(key);
      if (!present) {
        co_return present.error();
      }
      if (*present && (*present)->value == value && (*present)->revision > expected) {
        co_return (*present)->revision;
      }
    }
    co_return differing(key, expected);
  }

  std::shared_ptr<Servers> servers_;
  Place place_;
  Reaper reaper_;
};

/// The text of a file without white space at its end.
Result<std::string> text_of(const std::string& path) {
  std::ifstream file(path);
  std::string text(kTokenMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  if (text.empty()) {
    return Error{Code::kInvalidArgument, "read " + path + ": it is absent or empty"};
  }
  return text;
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Fills in what a pod is told by its environment.
Result<KubernetesUrl> in_pod(KubernetesUrl url) {
  const std::string host = environment("KUBERNETES_SERVICE_HOST");
  const std::string port = environment("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return Error{Code::kInvalidArgument,
                 "this runs in no pod, as KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are "
                 "not set; add ?server=URL&token_file=FILE&ca=FILE"};
  }
  const bool v6 = host.find(':') != std::string::npos;
  url.server = "https://" + (v6 ? "[" + host + "]" : host) + ":" + port;
  url.token_file = url.token_file.empty() ? std::string(kAccount) + "token" : url.token_file;
  url.ca = url.ca.empty() ? std::string(kAccount) + "ca.crt" : url.ca;
  if (url.name_space.empty()) {
    Result<std::string> name_space = text_of(std::string(kAccount) + "namespace");
    if (!name_space) {
      return name_space.error();
    }
    url.name_space = std::move(*name_space);
  }
  return url;
}

}  // namespace

Result<std::shared_ptr<Registry>> open_kubernetes(const asio::any_io_executor& executor,
                                                  const KubernetesUrl& url,
                                                  RegistryOptions options) {
  const std::string what = "registry kubernetes://" + url.name_space + ": ";
  const Result<KubernetesUrl> whole = url.server.empty() ? in_pod(url) : url;
  if (!whole) {
    return Error{whole.error().code, what + whole.error().message};
  }
  Result<HttpAddress> address = parse_http_address(whole->server, {});
  if (!address) {
    return Error{Code::kInvalidArgument, what + "server: " + address.error().message};
  }
  if (!whole->token_file.empty()) {
    if (const Result<std::string> token = text_of(whole->token_file); !token) {
      return Error{token.error().code, what + token.error().message};
    }
  }
  const auto access = [file = whole->token_file, ca = whole->ca] {
    const Result<std::string> token = file.empty() ? Result<std::string>("") : text_of(file);
    return http::ClientOptions{.access = {.api_key = token ? *token : "", .ca = ca},
                               .user_agent = "heddle",
                               .keep_alive = true};
  };
  std::string name = "Kubernetes at " + address->url() + ", namespace " + whole->name_space;
  Place place{.path = "/apis/coordination.k8s.io/v1/namespaces/" + whole->name_space + "/leases",
              .group = whole->name};
  auto servers = std::make_shared<Servers>(
      executor, std::move(name), std::vector{std::move(*address)}, access, options);
  auto registry = std::make_shared<KubernetesRegistry>(std::move(servers), std::move(place));
  registry->start();
  return std::shared_ptr<Registry>(std::move(registry));
}

}  // namespace heddle::cluster
