#include "remote/text_fetcher.h"

#include <algorithm>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "remote/text_files.h"

namespace heddle::remote {

namespace asio = boost::asio;

class TextFetcher::Impl : public std::enable_shared_from_this<TextFetcher::Impl> {
 public:
  using Done = std::function<void(Result<void>)>;

  Impl(const asio::any_io_executor& loop, asio::any_io_executor writer, Ask ask, Duration patience)
      : loop_(loop),
        writer_(std::move(writer)),
        ask_(std::move(ask)),
        patience_(patience),
        timer_(loop) {}

  void fetch(FetchText wanted, std::filesystem::path folder, Done done) {
    fetches_.push_back({.wanted = std::move(wanted),
                        .folder = std::move(folder),
                        .done = std::move(done),
                        .until = asio::steady_timer::clock_type::now() + patience_});
    look_later();
  }

  void stop() {
    stopped_ = true;
    timer_.cancel();
    leave_target();
  }

  void set_hosts(std::set<HostId> hosts) {
    hosts_ = std::move(hosts);
    look_later();
  }

  /// It may have what it had not before.
  void come(HostId host) {
    there_.insert(host);
    for (Fetch& fetch : fetches_) {
      fetch.tried.erase(host);
    }
    look_later();
  }

  /// It may come again, and is asked again then.
  void go(HostId host) {
    there_.erase(host);
    if (asked_ == host) {
      fetches_.front().tried.erase(host);
      failed({.code = Code::kUnavailable, .message = named(host) + "its link has ended"});
    }
  }

  Result<void> hear(HostId from, TextFile piece) {
    if (Result<void> asked = check(from, piece); !asked) {
      return asked;
    }
    if (piece.last) {
      asked_.reset();
    }
    write(std::move(piece));
    return {};
  }

  Result<void> hear(HostId from, const TextFailed& answer) {
    if (Result<void> asked = check(from, answer); !asked) {
      return asked;
    }
    failed({.code = answer.error.code, .message = named(from) + answer.error.message});
    return {};
  }

 private:
  struct Fetch {
    FetchText wanted{};
    std::filesystem::path folder{};
    Done done{};
    asio::steady_timer::time_point until{};  ///< Then it waits for no host any more.
    std::set<HostId> tried{};                ///< That could not send it.
    Error why{.code = Code::kUnavailable, .message = "no host is linked"};  ///< Of the last.
  };

  /// What one host sends, as it is written. The writer alone touches it.
  struct Target {
    explicit Target(std::filesystem::path path) : folder(std::move(path)) {}
    TextFolder folder;
    Result<void> good{};  ///< How it goes.
  };

  static std::string named(HostId host) { return "host " + std::to_string(host.value()) + ": "; }

  /// Whether the host was asked for this.
  template <class Answer>
  [[nodiscard]] Result<void> check(HostId from, const Answer& answer) const {
    if (asked_ == from && answer.model == fetches_.front().wanted.model &&
        answer.digest == fetches_.front().wanted.digest) {
      return {};
    }
    return Error{.code = Code::kCorrupt,
                 .message = "it sends text of model '" + answer.model + "', digest '" +
                            answer.digest + "', for which it was not asked"};
  }

  /// From the loop: the caller must not hear of it within its call.
  void look_later() {
    asio::post(loop_, [self = shared_from_this()] { self->look(); });
  }

  /// Begins with the first fetch that a host can be asked for, unless one is under way, and gives
  /// those up that no host will be asked for.
  void look() {
    while (!target_ && !stopped_ && !fetches_.empty()) {
      const auto ready = std::ranges::find_if(
          fetches_, [this](const Fetch& fetch) { return next_host(fetch) || is_spent(fetch); });
      if (ready == fetches_.end()) {
        wait();
        return;
      }
      fetches_.splice(fetches_.begin(), fetches_, ready);
      if (const std::optional<HostId> host = next_host(*ready)) {
        begin(*ready, *host);
      } else {
        end(Error{.code = ready->why.code,
                  .message = "fetch the text of model '" + ready->wanted.model +
                             "': " + ready->why.message});
      }
    }
  }

  /// A host that is there and was not asked for it.
  [[nodiscard]] std::optional<HostId> next_host(const Fetch& fetch) const {
    const auto found = std::ranges::find_if(
        there_, [&](const HostId host) { return !fetch.tried.contains(host); });
    return found == there_.end() ? std::nullopt : std::optional(*found);
  }
  /// Whether all hosts were asked for it, or the others are away for too long.
  [[nodiscard]] bool is_spent(const Fetch& fetch) const {
    return std::ranges::includes(fetch.tried, hosts_) ||
           asio::steady_timer::clock_type::now() >= fetch.until;
  }

  /// Until the first fetch has waited for too long.
  void wait() {
    timer_.expires_at(std::ranges::min_element(fetches_, {}, &Fetch::until)->until);
    timer_.async_wait([weak = weak_from_this()](const auto& stopped) {
      if (const std::shared_ptr<Impl> self = weak.lock(); self && !stopped) {
        self->look();
      }
    });
  }

  void begin(Fetch& fetch, HostId host) {
    fetch.tried.insert(host);
    asked_ = host;
    ++attempt_;
    target_ = std::make_shared<Target>(fetch.folder);
    ask_(host, fetch.wanted);
  }

  /// The first fetch has ended.
  void end(const Result<void>& how) {
    const Done done = std::move(fetches_.front().done);
    fetches_.pop_front();
    done(how);
  }

  /// The host that was asked does not do.
  void failed(const Error& why) {
    asked_.reset();
    fetches_.front().why = why;
    leave_target();
    look_later();
  }

  /// What is incomplete goes before anything else is written.
  void leave_target() {
    ++attempt_;
    asio::post(writer_, [target = std::exchange(target_, nullptr)] {});
  }

  /// What the host goes on to send after a failure is of no use, but has to come to its end.
  void write(TextFile piece) {
    asio::post(writer_,
               [loop = loop_,
                weak = weak_from_this(),
                target = target_,
                attempt = attempt_,
                piece = std::move(piece)] {
                 if (target->good) {
                   target->good = target->folder.add(piece.name, piece.bytes, piece.ends);
                 }
                 if (!piece.last) {
                   return;
                 }
                 const Result<void> whole = target->good ? target->folder.finish() : target->good;
                 asio::post(loop, [weak, attempt, whole] {
                   const std::shared_ptr<Impl> self = weak.lock();
                   if (self && !self->stopped_ && self->attempt_ == attempt) {
                     self->wrote(whole);
                   }
                 });
               });
  }

  void wrote(const Result<void>& whole) {
    if (!whole) {
      failed(whole.error());
      return;
    }
    leave_target();
    look_later();
    end({});
  }

  asio::any_io_executor loop_;
  asio::any_io_executor writer_;
  const Ask ask_;
  const Duration patience_;
  asio::steady_timer timer_;
  std::set<HostId> hosts_{};
  std::set<HostId> there_{};          ///< Of them, those that are linked.
  std::list<Fetch> fetches_{};        ///< The first is under way while there is a target.
  std::optional<HostId> asked_{};     ///< Who sends it, until its last piece has come.
  std::shared_ptr<Target> target_{};  ///< Where it goes.
  std::uint64_t attempt_ = 0;         ///< Raised whenever a host begins to send, or does not do.
  bool stopped_ = false;
};

TextFetcher::TextFetcher(const asio::any_io_executor& loop,
                         const asio::any_io_executor& writer,
                         Ask ask,
                         Duration patience)
    : impl_(std::make_shared<Impl>(loop, writer, std::move(ask), patience)) {}

TextFetcher::~TextFetcher() {
  impl_->stop();
}

void TextFetcher::fetch(FetchText wanted,
                        std::filesystem::path folder,
                        std::function<void(Result<void>)> done) {
  impl_->fetch(std::move(wanted), std::move(folder), std::move(done));
}
void TextFetcher::set_hosts(std::set<HostId> hosts) {
  impl_->set_hosts(std::move(hosts));
}
void TextFetcher::come(HostId host) {
  impl_->come(host);
}
void TextFetcher::go(HostId host) {
  impl_->go(host);
}
Result<void> TextFetcher::hear(HostId from, TextFile piece) {
  return impl_->hear(from, std::move(piece));
}
Result<void> TextFetcher::hear(HostId from, const TextFailed& failed) {
  return impl_->hear(from, failed);
}

}  // namespace heddle::remote
