#include "cluster/membership.h"

#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "cluster/election.h"
#include "spec/json_fields.h"
#include "spec/json_writer.h"

namespace heddle::cluster {

namespace asio = boost::asio;

namespace {

constexpr int kPutsPerLife = 3;
constexpr int kAttempts = 50;  ///< At what many others do at the same time.
constexpr std::int64_t kIdMax = std::numeric_limits<std::uint16_t>::max();
constexpr std::int64_t kMemberNumberMax = std::int64_t{1} << 62U;

std::string_view kind_of(Role role) {
  return role == Role::kHost ? "host" : "gateway";
}

std::string write_identity(const Identity& identity) {
  spec::JsonWriter json;
  json.begin_object().key("id").integer(identity.id);
  json.key("incarnation").integer(identity.incarnation).end_object();
  return std::move(json).take();
}

Error broken_record(const Registry& registry, const std::string& key, const Error& why) {
  return {Code::kCorrupt,
          registry.name() + ": record \"" + key + "\": " + why.message +
              "; remove it if nothing of the cluster runs"};
}

Result<Identity> parse_identity(std::string_view text) {
  const Result<spec::Json> json = spec::parse_json(text, "identity");
  if (!json) {
    return json.error();
  }
  spec::JsonFields fields(*json, "identity: ");
  const Identity identity{.id = static_cast<std::uint16_t>(fields.integer("id", {1, kIdMax})),
                          .incarnation = static_cast<std::uint64_t>(
                              fields.integer("incarnation", {0, kMemberNumberMax}))};
  return fields.ok() ? Result<Identity>(identity)
                     : Error{Code::kCorrupt, fields.status().error().message};
}

/// One more than the number of a counter, by which it is raised.
asio::awaitable<Result<std::int64_t>> count_up(Registry& registry, std::string key) {
  for (int i = 0; i < kAttempts; ++i) {
    const Result<std::optional<Record>> found = co_await registry.get(key);
    if (!found) {
      co_return found.error();
    }
    std::int64_t last = 0;
    if (*found) {
      const Result<spec::Json> json = spec::parse_json((*found)->value, "counter");
      if (!json) {
        co_return broken_record(registry, key, json.error());
      }
      spec::JsonFields fields(*json, "counter: ");
      last = fields.integer("last", {0, kMemberNumberMax});
      if (!fields.ok()) {
        co_return broken_record(registry, key, fields.status().error());
      }
    }
    spec::JsonWriter json;
    json.begin_object().key("last").integer(last + 1).end_object();
    const Revision expected = *found ? (*found)->revision : 0;
    const Result<Revision> put =
        co_await registry.put_if(key, expected, std::move(json).take(), Duration::zero());
    if (put) {
      co_return last + 1;
    }
    if (put.error().code != Code::kFailedPrecondition) {
      co_return put.error();  // What may have been put is a number that nobody gets.
    }
  }
  co_return Error{Code::kUnavailable,
                  registry.name() + ": others change \"" + key + "\" all the time; try again"};
}

/// An id of its own for a new name.
asio::awaitable<Result<Identity>> draw_identity(Registry& registry, Role role) {
  const std::string counter = "ids/last-" + std::string(kind_of(role));
  const Result<std::int64_t> id = co_await count_up(registry, counter);
  if (!id) {
    co_return id.error();
  }
  if (*id > kIdMax) {
    co_return Error{Code::kResourceExhausted,
                    registry.name() + ": all " + std::to_string(kIdMax) + " ids of " +
                        std::string(kind_of(role)) + "s are given (record \"" + counter + "\")"};
  }
  co_return Identity{.id = static_cast<std::uint16_t>(*id)};
}

/// Reads the record of a name's identity, or makes one, and raises the incarnation.
asio::awaitable<Result<Identity>> begin_life(Registry& registry, Role role, std::string name) {
  const std::string key = "ids/" + std::string(kind_of(role)) + "/" + name;
  for (int i = 0; i < kAttempts; ++i) {
    const Result<std::optional<Record>> found = co_await registry.get(key);
    if (!found) {
      co_return found.error();
    }
    Result<Identity> identity = Identity();
    if (*found) {
      identity = parse_identity((*found)->value);
      if (!identity) {
        co_return broken_record(registry, key, identity.error());
      }
    } else {
      identity = co_await draw_identity(registry, role);
      if (!identity) {
        co_return identity.error();
      }
    }
    ++identity->incarnation;
    const Revision expected = *found ? (*found)->revision : 0;
    const Result<Revision> put =
        co_await registry.put_if(key, expected, write_identity(*identity), Duration::zero());
    if (put) {
      co_return identity;
    }
    if (put.error().code != Code::kFailedPrecondition) {
      co_return put.error();
    }
  }
  co_return Error{Code::kUnavailable,
                  registry.name() + ": others change \"" + key + "\" all the time; try again"};
}

}  // namespace

std::string_view prefix_of(Role role) {
  return role == Role::kHost ? "hosts/" : "gateways/";
}

std::string write_member_record(const MemberRecord& record) {
  spec::JsonWriter json;
  json.begin_object().key("address").string(record.address);
  json.key("id")
      .integer(record.identity.id)
      .key("incarnation")
      .integer(record.identity.incarnation);
  json.key("holder").integer(record.holder).end_object();
  return std::move(json).take();
}

Result<MemberRecord> parse_member_record(std::string_view text) {
  const Result<Identity> identity = parse_identity(text);
  if (!identity) {
    return identity.error();
  }
  const Result<spec::Json> json = spec::parse_json(text, "member");
  spec::JsonFields fields(*json, "member: ");
  MemberRecord record{
      .address = fields.text("address"),
      .identity = *identity,
      .holder = static_cast<std::uint64_t>(fields.integer("holder", {1, kMemberNumberMax}))};
  return fields.ok() ? Result<MemberRecord>(std::move(record))
                     : Error{Code::kCorrupt, fields.status().error().message};
}

class Member::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(const asio::any_io_executor& executor,
       std::shared_ptr<Registry> registry,
       MemberOptions options,
       std::function<void(std::string_view)> gone)
      : registry_(std::move(registry)),
        options_(std::move(options)),
        gone_(std::move(gone)),
        key_(std::string(prefix_of(options_.role)) + options_.name),
        timer_(executor) {}

  asio::awaitable<Result<void>> join() {
    if (options_.name.find('/') != std::string::npos) {
      co_return Error{Code::kInvalidArgument,
                      "the name \"" + options_.name + "\" has a '/'; right is one word of a key"};
    }
    const Result<std::optional<Record>> found = co_await registry_->get(key_);
    if (!found) {
      co_return found.error();
    }
    if (*found) {
      co_return taken(**found);
    }
    const Result<Identity> identity = co_await begin_life(*registry_, options_.role, options_.name);
    if (!identity) {
      co_return identity.error();
    }
    record_ = {.address = options_.address, .identity = *identity, .holder = draw_holder()};
    const Result<void> put = co_await put_once();
    if (!put && put.error().code == Code::kFailedPrecondition) {
      co_return Error{Code::kFailedPrecondition,
                      put.error().message + "; another process of this name was faster"};
    }
    co_return put;
  }

  void start() {
    asio::co_spawn(timer_.get_executor(), keep(shared_from_this()), [](std::exception_ptr error) {
      HEDDLE_CHECK(error == nullptr);
    });
  }

  void end() {
    over_ = true;
    timer_.cancel();
  }

  asio::awaitable<Result<void>> leave() {
    end();
    const auto self = shared_from_this();
    Result<void> removed;
    for (int i = 0; i < kAttempts; ++i) {  // A last put may be on its way.
      const Result<std::optional<Record>> found = co_await registry_->get(key_);
      if (!found || !*found || !is_mine(**found)) {
        co_return found ? Result<void>() : found.error();
      }
      removed = co_await registry_->remove_if(key_, (*found)->revision);
      if (removed || removed.error().code != Code::kFailedPrecondition) {
        co_return removed;
      }
    }
    co_return removed;
  }

  [[nodiscard]] const Identity& identity() const { return record_.identity; }

 private:
  [[nodiscard]] Error taken(const Record& by) const {
    const Result<MemberRecord> other = parse_member_record(by.value);
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(options_.life).count();
    return {Code::kFailedPrecondition,
            registry_->name() + ": a " + std::string(kind_of(options_.role)) + " called \"" +
                options_.name + "\" is running" + (other ? " at " + other->address : "") +
                " (record \"" + key_ +
                "\"): give this one another name, or stop that one; if it "
                "was killed, its name is free after " +
                std::to_string(seconds) + " to " + std::to_string(2 * seconds) + " s"};
  }

  [[nodiscard]] bool is_mine(const Record& record) const {
    const Result<MemberRecord> read = parse_member_record(record.value);
    return read && read->holder == record_.holder;
  }

  asio::awaitable<Result<void>> put_once() {
    const Result<Revision> put =
        co_await registry_->put_if(key_, revision_, write_member_record(record_), options_.life);
    if (!put) {
      co_return put.error();
    }
    revision_ = *put;
    co_return Result<void>();
  }

  /// Puts the record again, on what is there now; kFailedPrecondition where it is another's.
  asio::awaitable<Result<void>> put_again() {
    Result<void> put = co_await put_once();
    if (put || over_) {
      co_return put;
    }
    const Result<std::optional<Record>> found = co_await registry_->get(key_);
    if (!found) {
      co_return found.error();
    }
    if (*found && !is_mine(**found)) {
      co_return taken(**found);
    }
    revision_ = *found ? (*found)->revision : 0;
    if (over_) {
      co_return Result<void>();
    }
    put = co_await put_once();
    // Where it changed once more the next round looks again.
    const bool raced = !put && put.error().code == Code::kFailedPrecondition;
    co_return raced ? Result<void>() : put;
  }

  static asio::awaitable<void> keep(std::shared_ptr<Impl> self) {
    while (!self->over_) {
      self->timer_.expires_after(self->options_.life / kPutsPerLife);
      co_await self->timer_.async_wait(asio::as_tuple(asio::use_awaitable));
      if (self->over_) {
        co_return;
      }
      const Result<void> put = co_await self->put_again();
      if (!self->over_ && !put && put.error().code == Code::kFailedPrecondition) {
        self->over_ = true;
        self->gone_(put.error().message);
      }
    }
  }

  std::shared_ptr<Registry> registry_;
  MemberOptions options_;
  std::function<void(std::string_view)> gone_;
  std::string key_;
  asio::steady_timer timer_;
  MemberRecord record_{};
  Revision revision_ = 0;
  bool over_ = false;
};

asio::awaitable<Result<std::unique_ptr<Member>>> Member::join(
    asio::any_io_executor executor,
    std::shared_ptr<Registry> registry,
    MemberOptions options,
    std::function<void(std::string_view)> gone) {
  auto impl =
      std::make_shared<Impl>(executor, std::move(registry), std::move(options), std::move(gone));
  const Result<void> joined = co_await impl->join();
  if (!joined) {
    co_return joined.error();
  }
  impl->start();
  co_return std::unique_ptr<Member>(new Member(std::move(impl)));
}

Member::Member(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Member::~Member() {
  impl_->end();
}

const Identity& Member::identity() const {
  return impl_->identity();
}

asio::awaitable<Result<void>> Member::leave() {
  return impl_->leave();
}

}  // namespace heddle::cluster
