#include "node/load_sync.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "history/load_book.h"
#include "remote/load_pieces.h"

namespace heddle::node {

namespace asio = boost::asio;

namespace {

/// More pieces than any book has: a host that says more never comes to an end.
constexpr std::size_t kPiecesMost = 1024;

}  // namespace

class LoadSync::Impl : public std::enable_shared_from_this<LoadSync::Impl> {
 public:
  Impl(asio::any_io_executor executor,
       manager::LoadRecords& records,
       const LoadSyncOptions& options)
      : executor_(std::move(executor)), records_(records), options_(options), timer_(executor_) {}

  void meet(HostId id, LoadKeeper host) {
    hosts_[id] = std::move(host);
    waiting_.push_back(id);
    next();
  }

  void lose(HostId id) {
    std::erase(waiting_, id);
    if (turn_ && turn_->host == id) {
      end_turn();
    }
    hosts_.erase(id);
  }

  void settle(bool settled) {
    settled_ = settled;
    next();
  }

  void hear(HostId id, const remote::Loads& answer) {
    if (!turn_ || turn_->host != id || turn_->heard) {
      return;  // Too late.
    }
    timer_.cancel();
    if (answer.same) {
      end_turn();
      return;
    }
    take(answer);
    if (answer.last) {
      turn_->heard = true;
      turn_->from = {};
      say_learnt();
      if (turn_->there.digest() == records_.book().digest()) {
        end_turn();  // So the host is told nothing of what it has just said.
      } else {
        tell_lacking();
      }
    } else if (++turn_->pieces < kPiecesMost) {
      turn_->from = remote::place_after(answer);
      ask();
    } else {
      give_up("says more than any host can remember");
    }
  }

  /// Windows of all models end together: they go as one message.
  void note(const std::string& model, const history::WindowLoad& ended) {
    ended_.begin(records_.book().length(), records_.book().keep());
    ended_.put(model, ended.window, ended.load);
    if (!std::exchange(ending_, true)) {
      asio::post(executor_, [weak = weak_from_this()] {
        if (const std::shared_ptr<Impl> self = weak.lock()) {
          self->tell_ended();
        }
      });
    }
  }

  void close() {
    records_.on_noted(nullptr);
    timer_.cancel();
  }

 private:
  /// The exchange with one host.
  struct Turn {
    HostId host{};
    remote::LoadPlace from{};   ///< Where its next piece begins; then, where the leader's does.
    history::LoadBook there{};  ///< What it has said.
    bool heard = false;         ///< It has said all.
    std::size_t pieces = 0;
    manager::Learnt learnt{};
  };

  void next() {
    if (!settled_ || turn_ || waiting_.empty()) {
      return;
    }
    turn_.emplace(Turn{.host = waiting_.front()});
    waiting_.pop_front();
    turn_->there.begin(records_.book().length(), records_.book().keep());
    ask();
  }

  void end_turn() {
    timer_.cancel();
    say_learnt();
    turn_.reset();
    next();
  }

  void give_up(const std::string& what) {
    log::warning("host is not asked for past loads any more",
                 {{"host", hosts_.at(turn_->host).name}, {"why", "it " + what}});
    end_turn();
  }

  void ask() {
    wait(options_.patience, [](Impl& self) { self.give_up("does not answer"); });
    hosts_.at(turn_->host)
        .ask({.length = records_.book().length(),
              .digest = records_.book().digest(),
              .model = turn_->from.model,
              .window = turn_->from.window});
  }

  void take(const remote::Loads& answer) {
    history::LoadBook piece;
    piece.begin(answer.length, history::LoadBook::kWindowsMost);
    remote::put(answer, piece);
    remote::put(answer, turn_->there);
    manager::Learnt learnt = records_.learn(piece);
    turn_->learnt.windows += learnt.windows;
    turn_->learnt.ahead += learnt.ahead;
    turn_->learnt.models.merge(learnt.models);
  }

  /// Once for each turn.
  void say_learnt() {
    const manager::Learnt learnt = std::exchange(turn_->learnt, {});
    const std::string& host = hosts_.at(turn_->host).name;
    if (learnt.ahead > 0) {
      log::warning("a host remembers loads of windows that have not ended by this clock",
                   {{"host", host}, {"windows", learnt.ahead}});
    }
    if (learnt.windows > 0) {
      log::info("took over past loads",
                {{"windows", learnt.windows}, {"models", learnt.models.size()}, {"host", host}});
      records_.tell_learnt(learnt.models);
    }
  }

  void tell_lacking() {
    const remote::Loads piece = remote::piece_from(records_.book(), turn_->from, &turn_->there);
    if (!piece.models.empty()) {
      hosts_.at(turn_->host).tell(piece);
    }
    if (piece.last) {
      end_turn();
      return;
    }
    turn_->from = remote::place_after(piece);
    wait(options_.pause, [](Impl& self) { self.tell_lacking(); });
  }

  void tell_ended() {
    remote::LoadPlace from;
    for (bool last = false; !last;) {
      const remote::Loads piece = remote::piece_from(ended_, from);
      for (const auto& [id, host] : hosts_) {
        host.tell(piece);
      }
      from = remote::place_after(piece);
      last = piece.last;
    }
    ended_ = {};
    ending_ = false;
  }

  /// Then, unless the timer is set anew before or the turn ends.
  template <class Then>
  void wait(Duration time, Then then) {
    timer_.expires_after(time);
    timer_.async_wait(
        [weak = weak_from_this(), then, turn = ++waits_](const boost::system::error_code& stopped) {
          const std::shared_ptr<Impl> self = weak.lock();
          if (!stopped && self != nullptr && turn == self->waits_ && self->turn_) {
            then(*self);
          }
        });
  }

  asio::any_io_executor executor_;
  manager::LoadRecords& records_;
  const LoadSyncOptions options_;
  asio::steady_timer timer_;
  std::uint64_t waits_ = 0;
  bool settled_ = false;
  std::map<HostId, LoadKeeper> hosts_{};
  std::deque<HostId> waiting_{};  ///< Whose turn comes.
  std::optional<Turn> turn_{};
  history::LoadBook ended_{};  ///< Windows of which hosts are about to hear.
  bool ending_ = false;        ///< There are such.
};

LoadSync::LoadSync(const asio::any_io_executor& executor,
                   manager::LoadRecords& records,
                   const LoadSyncOptions& options)
    : impl_(std::make_shared<Impl>(executor, records, options)) {
  records.on_noted(
      [impl = impl_.get()](const std::string& model, const history::WindowLoad& ended) {
        impl->note(model, ended);
      });
}

LoadSync::~LoadSync() {
  impl_->close();
}

void LoadSync::meet(HostId id, LoadKeeper host) {
  impl_->meet(id, std::move(host));
}
void LoadSync::lose(HostId id) {
  impl_->lose(id);
}
void LoadSync::hear(HostId id, const remote::Loads& answer) {
  impl_->hear(id, answer);
}
void LoadSync::settle(bool settled) {
  impl_->settle(settled);
}

}  // namespace heddle::node
