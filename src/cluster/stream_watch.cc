#include "cluster/stream_watch.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "cluster/line_splitter.h"

namespace heddle::cluster {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kLineMax = 32U << 20U;
constexpr std::size_t kCheckBodyMax = 1U << 20U;
constexpr Duration kFirstPauseOfWatch = 20ms;
constexpr Duration kLongestPauseOfWatch = 500ms;
constexpr int kStreaming = 200;

void no_exception(const std::exception_ptr& failure) {
  HEDDLE_CHECK(failure == nullptr);
}

/// One stream, from its opening to its end.
struct Stream {
  explicit Stream(const Servers& servers) : client(servers.connect()), timer(servers.executor()) {}
  std::shared_ptr<http::Client> client;
  asio::steady_timer timer;  ///< To the next check.
  LineSplitter lines{kLineMax};
  bool ended = false;
  bool heard = false;        ///< Anything at all.
  std::string trouble{};     ///< Why it was ended from here.
  Revision lags_behind = 0;  ///< The position at a check that found newer records; 0: it did not.
};

/// The watch as its coroutines hold it.
struct WatchState {
  std::shared_ptr<Servers> servers;
  std::unique_ptr<WatchSource> source;
  std::string store;
  Revision position;
  WatchHandler handler;
  bool over = false;
  std::string trouble{"not connected yet"};
  std::shared_ptr<Stream> stream{};
  asio::steady_timer pause;

  void end() {
    over = true;
    pause.cancel();
    if (stream != nullptr) {
      stop(*stream, "");
    }
  }

  static void stop(Stream& which, std::string why) {
    which.ended = true;
    which.trouble = std::move(why);
    which.timer.cancel();
    which.client->stop();
  }

  void tell(const Change& change) {
    if (!over) {
      handler(change);
    }
  }

  void lose(const std::string& why) {
    if (over) {
      return;
    }
    trouble = why;
    tell({.kind = Change::Kind::kLost, .why = servers->name() + ": " + why});
    end();
  }

  /// Whether the stream goes on.
  bool take(Stream& from, Heard heard) {
    if (!heard.lost.empty()) {
      lose(heard.lost);
      return false;
    }
    const Revision before = position;
    for (const Change& each : heard.changes) {
      if (each.record.revision <= before) {
        lose("it tells of revision " + std::to_string(each.record.revision) + " after " +
             std::to_string(before));
        return false;
      }
      position = std::max(position, each.record.revision);
      tell(each);
      if (over) {
        return false;
      }
    }
    position = std::max(position, heard.position);
    if (!heard.broken.empty()) {
      stop(from, heard.broken);
      return false;
    }
    from.heard = true;
    return true;
  }

  void feed(Stream& from, std::string_view part) {
    if (over || from.ended) {
      return;
    }
    const bool goes_on = from.lines.feed(
        part, [&](std::string_view line) { return take(from, source->hear(line)); });
    if (!goes_on && !over && !from.ended) {
      lose("it tells of changes in a line of more than " + std::to_string(kLineMax) + " bytes");
    }
  }

  /// Whether all is well; else it has been said, or `from.trouble` says what is not.
  /// @param asked  The position when the check was sent.
  bool judge(Stream& from, const Result<http::Reply>& reply, Revision asked) {
    const Result<StoreState> now = reply ? source->checked(*reply) : reply.error();
    if (over) {
      return false;
    }
    if (!now) {
      stop(from, now.error().message);
      return false;
    }
    if (!store.empty() && now->store != store) {
      lose("this is another store than before: its id is " + now->store + " instead of " + store);
      return false;
    }
    store = now->store;
    if (now->revision < asked) {
      lose("its revision went back from " + std::to_string(asked) + " to " +
           std::to_string(now->revision) + ", as if it were restored from a snapshot");
      return false;
    }
    if (now->newest > position && from.lags_behind == position) {
      stop(from, "its stream does not tell what has changed");
      return false;
    }
    from.lags_behind = now->newest > position ? position : 0;
    return true;
  }
};
using SharedWatch = std::shared_ptr<WatchState>;
using SharedStream = std::shared_ptr<Stream>;

asio::awaitable<bool> check_once(SharedWatch watch, SharedStream stream) {
  http::Request request = watch->source->check();
  request.patience = watch->servers->times().patience / 2;
  request.body_max = kCheckBodyMax;
  const Revision asked = watch->position;
  const Result<http::Reply> reply = co_await stream->client->exchange(std::move(request));
  co_return watch->judge(*stream, reply, asked);
}

asio::awaitable<void> keep_checking(SharedWatch watch, SharedStream stream) {
  while (!stream->ended) {
    stream->timer.expires_after(watch->servers->times().check);
    co_await stream->timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (!stream->ended) {
      co_await check_once(watch, stream);
    }
  }
}

/// Until the stream ends, which is then closed.
asio::awaitable<void> listen(SharedWatch watch, SharedStream stream) {
  const bool well = co_await check_once(watch, stream);
  if (!well) {
    co_return;
  }
  watch->trouble.clear();
  asio::co_spawn(watch->servers->executor(), keep_checking(watch, stream), no_exception);
  http::Request request = watch->source->stream(watch->position);
  WatchState* const borrowed = watch.get();
  Stream* const from = stream.get();
  request.on_part = [borrowed, from](std::string_view part) { borrowed->feed(*from, part); };
  const Result<http::Reply> reply = co_await stream->client->exchange(std::move(request));
  if (watch->over || stream->ended) {
    co_return;
  }
  if (!reply) {
    WatchState::stop(*stream, reply.error().message);
  } else if (reply->status != kStreaming) {
    watch->take(*stream, watch->source->refused(*reply));
  } else {
    WatchState::stop(*stream, "");  // As servers do with streams that are old.
  }
}

asio::awaitable<void> keep_watching(SharedWatch watch) {
  for (Duration pause = kFirstPauseOfWatch; !watch->over;) {
    watch->stream = std::make_shared<Stream>(*watch->servers);
    co_await listen(watch, watch->stream);
    const bool heard = watch->stream->heard;
    if (watch->over) {
      co_return;
    }
    watch->trouble = std::exchange(watch->stream->trouble, {});
    watch->servers->pass_on();
    pause = heard ? kFirstPauseOfWatch : std::min(pause * 2, kLongestPauseOfWatch);
    watch->pause.expires_after(pause);
    co_await watch->pause.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

class StreamWatch final : public Watch {
 public:
  explicit StreamWatch(SharedWatch state) : state_(std::move(state)) {}
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;
  ~StreamWatch() override { state_->end(); }

  [[nodiscard]] std::string trouble() const override { return state_->trouble; }

 private:
  SharedWatch state_;
};

}  // namespace

std::unique_ptr<Watch> watch_stream(std::shared_ptr<Servers> servers,
                                    std::unique_ptr<WatchSource> source,
                                    std::string store,
                                    Revision after,
                                    WatchHandler handler) {
  asio::steady_timer pause(servers->executor());
  auto state = std::make_shared<WatchState>(WatchState{.servers = std::move(servers),
                                                       .source = std::move(source),
                                                       .store = std::move(store),
                                                       .position = after,
                                                       .handler = std::move(handler),
                                                       .pause = std::move(pause)});
  asio::co_spawn(state->servers->executor(), keep_watching(state), no_exception);
  return std::make_unique<StreamWatch>(std::move(state));
}

}  // namespace heddle::cluster
