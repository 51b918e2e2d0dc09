#include "worker/lockstep.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "base/log.h"
#include "base/siphash.h"
#include "core/codec.h"
#include "rpc/frame.h"

#include <sys/socket.h>

namespace heddle::worker {

namespace {

Result<void> send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent < 0) {
      return Error{Code::kUnavailable,
                   std::string("tell another rank what to do: ") + std::strerror(errno)};
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

/// Sequences of another rank's core have names of their own: those of the core here are smaller.
constexpr std::uint64_t kFollowed = std::uint64_t{1} << 63U;

core::SequenceId followed(core::SequenceId id) {
  return core::SequenceId(id.value() | kFollowed);
}

std::uint64_t name_there(core::SequenceId id) {
  return id.value() & ~kFollowed;
}

}  // namespace

bool is_followed(core::SequenceId id) {
  return (id.value() & kFollowed) != 0;
}

bool runs(const policy::StepPlan& plan, ModelId model) {
  return std::ranges::any_of(plan.batches, [&](const auto& batch) { return batch.model == model; });
}

bool Lockstep::is_of_group(core::SequenceId id) const {
  return leads() ? sequences_.contains(id) : is_followed(id);
}

/// What a step did to the group's model, but for the time it took.
std::uint64_t Lockstep::digest(const core::StepDone& done) const {
  std::vector<std::uint64_t> words;
  const auto add = [&words](auto value) { words.push_back(static_cast<std::uint64_t>(value)); };
  for (const core::SliceDone& slice : done.slices) {
    if (is_of_group(slice.sequence)) {
      add(name_there(slice.sequence));
      add(slice.computed);
      add(slice.token.value_or(-1));
      add(slice.position);
      add(slice.finish);
    }
  }
  for (const core::SequenceId id : done.starved) {
    if (is_of_group(id)) {
      add(name_there(id));
    }
  }
  for (const core::KvHeld& held : done.counted.kv) {
    if (held.model == model_) {
      add(held.pages);
    }
  }
  return siphash(SipKey{}, std::as_bytes(std::span(words))).low;
}

bool is_for_engine(const core::WorkerCommand& command) {
  return std::holds_alternative<core::AddSequence>(command) ||
         std::holds_alternative<core::TakePrefixes>(command) ||
         std::holds_alternative<core::SizeShare>(command) ||
         std::holds_alternative<core::LeaveRanks>(command) ||
         std::holds_alternative<core::PreemptSequence>(command) ||
         std::holds_alternative<core::RemoveSequence>(command) ||
         std::holds_alternative<core::RunStep>(command);
}

/// Of a command of rank 0 the part that concerns the group; none: nothing of it does.
std::optional<core::WorkerCommand> Lockstep::of_group(const core::WorkerCommand& command) {
  if (const auto* add = std::get_if<core::AddSequence>(&command)) {
    if (add->model != model_) {
      return std::nullopt;
    }
    sequences_.insert(add->sequence);
    return command;
  }
  if (const auto* take = std::get_if<core::TakePrefixes>(&command)) {
    core::TakePrefixes own = *take;
    std::erase_if(own.sequences, [this](core::SequenceId id) { return !is_of_group(id); });
    return own.sequences.empty() ? std::nullopt : std::optional<core::WorkerCommand>(own);
  }
  if (const auto* preempt = std::get_if<core::PreemptSequence>(&command)) {
    return is_of_group(preempt->sequence) ? std::optional(command) : std::nullopt;
  }
  if (const auto* remove = std::get_if<core::RemoveSequence>(&command)) {
    return sequences_.erase(remove->sequence) > 0 ? std::optional(command) : std::nullopt;
  }
  if (const auto* run = std::get_if<core::RunStep>(&command)) {
    core::RunStep own = *run;
    std::erase_if(own.plan.batches,
                  [this](const policy::ModelBatch& batch) { return batch.model != model_; });
    return own.plan.batches.empty() ? std::nullopt : std::optional<core::WorkerCommand>(own);
  }
  const auto* size = std::get_if<core::SizeShare>(&command);
  const auto* leave = std::get_if<core::LeaveRanks>(&command);
  const bool own =
      (size != nullptr && size->model == model_) || (leave != nullptr && leave->model == model_);
  return own ? std::optional(command) : std::nullopt;
}

core::WorkerCommand Lockstep::named_here(core::WorkerCommand command) const {
  if (auto* add = std::get_if<core::AddSequence>(&command)) {
    add->model = model_;
    add->sequence = followed(add->sequence);
  } else if (auto* take = std::get_if<core::TakePrefixes>(&command)) {
    for (core::SequenceId& id : take->sequences) {
      id = followed(id);
    }
  } else if (auto* preempt = std::get_if<core::PreemptSequence>(&command)) {
    preempt->sequence = followed(preempt->sequence);
  } else if (auto* remove = std::get_if<core::RemoveSequence>(&command)) {
    remove->sequence = followed(remove->sequence);
  } else if (auto* size = std::get_if<core::SizeShare>(&command)) {
    size->model = model_;
  } else if (auto* leave = std::get_if<core::LeaveRanks>(&command)) {
    leave->model = model_;
  } else if (auto* run = std::get_if<core::RunStep>(&command)) {
    for (policy::ModelBatch& batch : run->plan.batches) {
      batch.model = model_;
      for (policy::StepSlice& slice : batch.slices) {
        slice.sequence = followed(slice.sequence);
      }
    }
  }
  return command;
}

Result<void> Lockstep::pass_on(const core::WorkerCommand& command) {
  const std::optional<core::WorkerCommand> own =
      is_for_engine(command) ? of_group(command) : std::nullopt;
  if (!own) {
    return {};
  }
  const std::string payload = core::encode(*own);
  const auto header = rpc::encode_frame_header(payload.size(), 0);
  const std::string frame =
      std::string(reinterpret_cast<const char*>(header.data()), header.size()) + payload;
  for (const Descriptor& follower : followers_) {
    if (const Result<void> sent = send_all(follower.get(), frame); !sent) {
      return sent.error();
    }
  }
  return {};
}

const ops::PeerArea* Lockstep::meet_peers(device::Device& device, bool whole) {
  if (!links_) {
    return nullptr;
  }
  constexpr Duration kPatience = std::chrono::seconds(5);
  auto met = PeerRanks::meet(device, *links_, kPatience);
  links_.reset();
  const Result<std::int64_t> all = group_->least(met && whole ? 1 : 0);
  if (met && all && *all == 1) {
    peers_ = std::move(*met);
    log::info("ranks exchange over the GPUs' links", {{"model", model_}, {"rank", group_->rank()}});
    return &peers_->area();
  }
  log::warning(
      "ranks exchange through the host, which is slow",
      {{"model", model_},
       {"rank", group_->rank()},
       {"why", met ? "another rank cannot, or weights are on their way" : met.error().message}});
  return nullptr;
}

Result<void> Lockstep::part() {
  return group_->agree(0);
}

Result<void> Lockstep::compare(const core::StepDone& done) {
  return group_->agree(digest(done));
}

}  // namespace heddle::worker
