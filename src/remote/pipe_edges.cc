#include "remote/pipe_edges.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "remote/caller.h"
#include "remote/carried_stream.h"
#include "remote/edge_messages.h"

#include <sys/socket.h>

namespace heddle::remote {

namespace asio = boost::asio;

namespace {

using WaitingId = Id<struct WaitingLinkTag>;

Error corrupt(std::string message) {
  return {.code = Code::kCorrupt, .message = std::move(message)};
}

/// "stage 2 on h3".
std::string where(const agent::Edge& edge) {
  return "stage " + std::to_string(edge.begins ? edge.stage + 1 : edge.stage) + " on " +
         edge.peer.name;
}

}  // namespace

class PipeEdges::Impl : public std::enable_shared_from_this<PipeEdges::Impl> {
 public:
  Impl(asio::any_io_executor executor,
       net::Self self,
       std::function<void(const agent::EdgeNews&)> heard,
       const PipeEdgesOptions& options)
      : executor_(std::move(executor)),
        self_(std::move(self)),
        heard_(std::move(heard)),
        options_(options) {
    self_.use = rpc::LinkUse::kPipes;
  }

  void close() {
    groups_.clear();
    waiting_.clear();
    heard_ = nullptr;
  }

  void connect(core::GroupId id, std::vector<agent::Edge> edges) {
    Group& group = groups_[id];
    group.patience.emplace(executor_);
    group.patience->expires_after(options_.patience);
    group.patience->async_wait([weak = weak_from_this(), id](const auto& stopped) {
      if (const std::shared_ptr<Impl> self = weak.lock(); self && !stopped) {
        self->lose_patience(id);
      }
    });
    for (agent::Edge& edge : edges) {
      const std::int64_t stage = edge.stage;
      group.edges.push_back(std::make_unique<End>(*this, id, std::move(edge)));
      End& end = *group.edges.back();
      const auto asked = std::ranges::find_if(waiting_, [&](const auto& entry) {
        return entry.second.opens && entry.second.opens->group == id &&
               entry.second.opens->stage == stage;
      });
      if (end.begins()) {
        end.dial();
      } else if (asked != waiting_.end()) {
        give(asked->first, end);
      }
    }
  }

  void leave(core::GroupId id) { groups_.erase(id); }

  void take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
    if (waiting_.size() >= options_.waiting_most) {
      waiting_.erase(waiting_.begin());
    }
    const WaitingId id{++links_taken_};
    Waiting& one = waiting_[id];
    one.ear = std::make_shared<Ear>();
    one.caller = std::make_unique<Caller>(
        executor_,
        std::move(link),
        peer,
        Caller::Handlers{.on_message =
                             [this, id, ear = one.ear](const std::string& payload) {
                               return ear->end == nullptr ? open(id, payload)
                                                          : ear->end->hear_before(payload);
                             },
                         .on_gone =
                             [this, id, ear = one.ear](const Error& why) {
                               if (ear->end == nullptr) {
                                 waiting_.erase(id);
                               } else {
                                 ear->end->lost(why);
                               }
                             },
                         .on_drained =
                             [ear = one.ear] {
                               if (ear->end != nullptr) {
                                 ear->end->resume();
                               }
                             }});
    one.patience.emplace(executor_);
    one.patience->expires_after(options_.patience);
    one.patience->async_wait([weak = weak_from_this(), id](const auto& stopped) {
      if (const std::shared_ptr<Impl> self = weak.lock(); self && !stopped) {
        self->refuse(id);
      }
    });
  }

 private:
  class End;
  /// Who hears what comes over a link that was taken: nobody until its edge is known.
  struct Ear {
    End* end = nullptr;
  };
  /// A link for an edge that is not known here yet.
  struct Waiting {
    std::optional<OpenEdge> opens{};
    std::shared_ptr<Ear> ear{};
    std::optional<asio::steady_timer> patience{};
    std::unique_ptr<Caller> caller{};
  };
  struct Group {
    std::optional<asio::steady_timer> patience{};  ///< Until all edges are up.
    std::vector<std::unique_ptr<End>> edges{};
  };

  /// From the loop: who connects edges must not hear of them within the call.
  void tell(agent::EdgeNews news) {
    asio::post(executor_, [weak = weak_from_this(), news = std::move(news)] {
      if (const std::shared_ptr<Impl> self = weak.lock(); self && self->heard_) {
        self->heard_(news);
      }
    });
  }

  /// An edge is up: if it is the last one, so is the group.
  void came_up(core::GroupId id) {
    Group& group = groups_.at(id);
    if (std::ranges::all_of(group.edges, [](const auto& edge) { return edge->up(); })) {
      group.patience.reset();
      tell(core::GroupLinked{.group = id});
    }
  }

  /// What is to be heard of a group that ended elsewhere.
  void cut(core::GroupId id, const Error& why) {
    groups_.erase(id);
    tell(core::GroupCut{.group = id, .reason = why});
  }

  void lose_patience(core::GroupId id) {
    const auto group = groups_.find(id);
    if (group == groups_.end()) {
      return;
    }
    const auto missing =
        std::ranges::find_if(group->second.edges, [](const auto& edge) { return !edge->up(); });
    if (missing != group->second.edges.end()) {
      cut(id, (*missing)->why_not_up());
    }
  }

  // ---- Links that others have made ----

  Result<void> open(WaitingId id, const std::string& payload) {
    const auto one = waiting_.find(id);
    const Result<ToEdge> message = decode_to_edge(payload);
    if (!message) {
      return message.error();
    }
    const auto* opens = std::get_if<OpenEdge>(&*message);
    if (one == waiting_.end() || opens == nullptr || one->second.opens) {
      return corrupt("it speaks over an edge that it has not opened, or that is not up");
    }
    one->second.opens = *opens;
    const auto group = groups_.find(opens->group);
    if (group == groups_.end()) {
      return {};
    }
    const auto end = std::ranges::find_if(group->second.edges, [&](const auto& edge) {
      return !edge->begins() && edge->stage() == opens->stage;
    });
    if (end == group->second.edges.end()) {
      return Error{.code = Code::kFailedPrecondition,
                   .message = "the group has no such edge to this host"};
    }
    give(id, **end);
    return {};
  }

  void give(WaitingId id, End& end) {
    Waiting one = std::move(waiting_.extract(id).mapped());
    one.patience.reset();
    if (!end.accept(*one.caller)) {
      drop_later(std::move(one.caller));
      return;
    }
    one.ear->end = &end;
    end.begin_taken(std::move(one.caller), one.ear);
  }

  /// Its handler may be what called this.
  void drop_later(std::unique_ptr<Caller> caller) {
    asio::post(executor_, [caller = std::shared_ptr<Caller>(std::move(caller))] {
      caller->end("another host has this end of the edge, or it is taken");
    });
  }

  void refuse(WaitingId id) {
    const auto one = waiting_.find(id);
    if (one != waiting_.end()) {
      one->second.caller->end("nobody here has asked for this edge of a pipe");
      waiting_.erase(one);
    }
  }

  /// This host's end of an edge.
  class End {
   public:
    End(Impl& owner, core::GroupId group, agent::Edge edge)
        : owner_(owner), group_(group), edge_(std::move(edge)) {}
    ~End() {
      if (ear_) {
        ear_->end = nullptr;
      }
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    [[nodiscard]] bool begins() const { return edge_.begins; }
    [[nodiscard]] std::int64_t stage() const { return edge_.stage; }
    [[nodiscard]] bool up() const { return carried_ != nullptr; }
    [[nodiscard]] Error why_not_up() const {
      return {
          .code = Code::kUnavailable,
          .message =
              "connect a pipeline with " + where(edge_) +
              (begins()
                   ? " at " +
                         net::Address{.host = edge_.peer.address, .port = edge_.peer.port}.text()
                   : "") +
              ": " + (trouble_.empty() ? "its host has not done its part" : trouble_)};
    }

    void dial() {
      connector_.emplace(
          owner_.executor_,
          net::Address{.host = edge_.peer.address, .port = edge_.peer.port},
          owner_.self_,
          net::Wanted{.roles = {net::Role::kAgent}, .name = edge_.peer.name},
          net::Connector::Handlers{
              .on_up = [this](const net::Peer& /*host*/) { say(OpenEdge{group_, edge_.stage}); },
              .on_down = [this](const Error& why) { lost(why); },
              .on_frame = [this](const rpc::Frame& frame) { hear_behind(frame.payload); },
              .on_drained = [this] { resume(); }},
          owner_.options_.connector);
    }

    /// Whether the link is of the host that this end waits for.
    [[nodiscard]] bool accept(const Caller& caller) const {
      return caller_ == nullptr && caller.peer().identity.name == edge_.peer.name;
    }
    void begin_taken(std::unique_ptr<Caller> caller, std::shared_ptr<Ear> ear) {
      caller_ = std::move(caller);
      ear_ = std::move(ear);
      caller_->send(encode(FromEdge(EdgeOpened{})));
      begin();
    }

    /// The link has ended. Before the edge was up that was one try of several.
    void lost(const Error& why) {
      trouble_ = why.message;
      if (up()) {
        owner_.cut(group_,
                   {.code = Code::kUnavailable, .message = where(edge_) + ": " + why.message});
      }
    }
    void resume() {
      if (carried_) {
        carried_->resume();
      }
    }

    /// From the host of the stage before.
    Result<void> hear_before(const std::string& payload) {
      Result<ToEdge> message = decode_to_edge(payload);
      return message ? std::visit([this](auto& said) { return this->take(said); }, *message)
                     : message.error();
    }

   private:
    /// From the host of the stage behind.
    void hear_behind(const std::string& payload) {
      Result<FromEdge> message = decode_from_edge(payload);
      const Result<void> good =
          message ? std::visit([this](auto& said) { return this->take(said); }, *message)
                  : message.error();
      if (!good) {
        connector_->end(good.error().message);
      }
    }

    static Result<void> take(const OpenEdge& /*open*/) { return corrupt("it opens an edge twice"); }
    Result<void> take(const EdgeOpened& /*opened*/) {
      if (up()) {
        return corrupt("it says twice that an edge is open");
      }
      begin();
      return {};
    }
    Result<void> take(StreamBytes& piece) {
      return up() ? carried_->put(std::move(piece.bytes)) : corrupt("bytes of no edge");
    }
    Result<void> take(const StreamTaken& taken) {
      return up() ? carried_->taken(taken.bytes) : corrupt("bytes of no edge");
    }

    /// Both ends are there.
    void begin() {
      carried_ = std::make_unique<CarriedStream>(CarriedStream::Handlers{
          .on_bytes = [this](std::string bytes) { say(StreamBytes{.bytes = std::move(bytes)}); },
          .on_taken = [this](std::uint64_t bytes) { say(StreamTaken{.bytes = bytes}); },
          // The worker here has ended it, or is dead, which its host hears by itself.
          .on_ended = [this](const std::optional<Error>& /*why*/) { owner_.groups_.erase(group_); },
          .has_room = [this] { return queued() < owner_.options_.queued_full; }});
      carried_->begin(CarriedStream::Socket(
          owner_.executor_, asio::generic::stream_protocol(AF_UNIX, 0), edge_.socket.release()));
      owner_.came_up(group_);
    }

    template <class Message>
    void say(Message message) {
      if (caller_) {
        if constexpr (std::is_constructible_v<FromEdge, Message>) {
          caller_->send(encode(FromEdge(std::move(message))));
        }
      } else if (const Result<void> sent = connector_->send(encode(ToEdge(std::move(message))));
                 !sent && sent.error().code != Code::kUnavailable) {
        connector_->end(sent.error().message);
      }
    }
    [[nodiscard]] std::size_t queued() const {
      return caller_ ? caller_->queued_bytes() : connector_->queued_bytes();
    }

    Impl& owner_;
    const core::GroupId group_;
    agent::Edge edge_;
    std::string trouble_{};
    std::unique_ptr<CarriedStream> carried_{};  ///< Once the edge is up.
    std::shared_ptr<Ear> ear_{};                ///< Of `caller_`.
    std::unique_ptr<Caller> caller_{};          ///< Where the other host has linked with this one.
    std::optional<net::Connector> connector_{};
  };

  asio::any_io_executor executor_;
  net::Self self_;
  std::function<void(const agent::EdgeNews&)> heard_;
  const PipeEdgesOptions options_;
  std::uint64_t links_taken_ = 0;
  std::map<core::GroupId, Group> groups_{};
  std::map<WaitingId, Waiting> waiting_{};
};

PipeEdges::PipeEdges(asio::any_io_executor executor,
                     net::Self self,
                     std::function<void(const agent::EdgeNews&)> heard,
                     const PipeEdgesOptions& options)
    : impl_(std::make_shared<Impl>(
          std::move(executor), std::move(self), std::move(heard), options)) {}

PipeEdges::~PipeEdges() {
  impl_->close();
}

void PipeEdges::connect(core::GroupId group, std::vector<agent::Edge> edges) {
  impl_->connect(group, std::move(edges));
}
void PipeEdges::leave(core::GroupId group) {
  impl_->leave(group);
}
void PipeEdges::take(std::unique_ptr<net::HostLink> link, const net::Peer& peer) {
  impl_->take(std::move(link), peer);
}

}  // namespace heddle::remote
