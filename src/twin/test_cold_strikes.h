#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <variant>
#include <vector>

#include "twin/cluster.h"

/// For tests: whoever takes part in a cold start by several hosts dies at a certain moment of it.
namespace heddle::twin::test {

enum class ColdMoment : std::uint8_t {
  kForms,    ///< All stages are there, and hosts are to connect them.
  kServes,   ///< The leader knows of all followers.
  kLoads,    ///< The whole model is loaded beside the first stage.
  kGathers,  ///< The leader is told to have KV come to it.
  kMoves,    ///< It asks for some.
  kEnds,     ///< The stages are to leave.
};
inline constexpr std::array<std::string_view, 6> kColdMoments{
    "forms", "serves", "loads", "gathers", "moves", "ends"};

enum class ColdVictim : std::uint8_t {
  kLeader,  ///< Its worker.
  kFollower,
  kLeaderHost,
  kFollowerHost,
  kManager,
  kWay,  ///< From the leader's host to the follower's.
};
inline constexpr std::array<std::string_view, 6> kColdVictims{
    "leader", "follower", "leader's host", "follower's host", "manager", "way"};

/// Looks at what has just been heard, and strikes once, at the first such moment.
class ColdStrikes {
 public:
  ColdStrikes(ColdMoment moment, ColdVictim victim) : moment_(moment), victim_(victim) {}

  void look(Cluster& cluster) {
    for (const auto& [id, node] : cluster.hosts()) {
      const auto& record = node->host().record();
      for (std::size_t& step = agent_steps_[node.get()]; step < record.size(); ++step) {
        if (const auto* form = std::get_if<core::FormGroup>(&record[step].event)) {
          members_ = form->members;
          if (moment_ == ColdMoment::kForms) {
            strike(cluster);
          }
        }
      }
      for (const auto& life : node->host().lives()) {
        look_at(cluster, *life);
      }
    }
  }

  [[nodiscard]] bool struck() const { return struck_; }

 private:
  void look_at(Cluster& cluster, const Worker& worker) {
    const auto& record = worker.record();
    for (std::size_t& step = worker_steps_[&worker]; step < record.size(); ++step) {
      const bool leads = !members_.empty() && members_.front().device == worker.device() &&
                         members_.front().epoch == worker.epoch();
      if (leads && is_moment(record[step])) {
        strike(cluster);
      }
    }
  }

  [[nodiscard]] bool is_moment(const Worker::Record::value_type& step) const {
    const auto* message = std::get_if<core::WorkerMessage>(&step.event);
    switch (moment_) {
      case ColdMoment::kServes:
        return std::holds_alternative<core::PipeReady>(step.event);
      case ColdMoment::kLoads:
        return message != nullptr && std::holds_alternative<core::LoadModel>(*message);
      case ColdMoment::kGathers:
        return message != nullptr && std::holds_alternative<core::Gather>(*message);
      case ColdMoment::kEnds: {
        const auto* evict = message ? std::get_if<core::EvictModel>(message) : nullptr;
        return evict != nullptr && evict->model == members_.front().model;
      }
      case ColdMoment::kMoves:
        for (const core::WorkerCommand& command : step.commands) {
          if (std::holds_alternative<core::GatherKv>(command)) {
            return true;
          }
        }
        return false;
      default:
        return false;
    }
  }

  void strike(Cluster& cluster) {
    if (std::exchange(struck_, true)) {
      return;
    }
    const DeviceId leader = members_.front().device;
    const DeviceId follower = members_.back().device;
    switch (victim_) {
      case ColdVictim::kLeader:
        cluster.kill(leader);
        return;
      case ColdVictim::kFollower:
        cluster.kill(follower);
        return;
      case ColdVictim::kLeaderHost:
        cluster.kill(host_of(leader));
        return;
      case ColdVictim::kFollowerHost:
        cluster.kill(host_of(follower));
        return;
      case ColdVictim::kManager:
        cluster.kill_leader();
        return;
      case ColdVictim::kWay:
        cluster.cut(host_of(leader), host_of(follower));
        return;
    }
  }

  ColdMoment moment_;
  ColdVictim victim_;
  bool struck_ = false;
  std::vector<core::GroupMember> members_{};  ///< Of the last group that was to be formed.
  std::map<const HostNode*, std::size_t> agent_steps_{};
  std::map<const Worker*, std::size_t> worker_steps_{};
};

}  // namespace heddle::twin::test
