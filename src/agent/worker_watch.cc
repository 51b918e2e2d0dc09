#include "agent/worker_watch.h"

#include <utility>

#include "base/log.h"
#include "external/proc.h"

namespace heddle::agent {

using policy::Health;

void WorkerWatch::begin(pid_t pid, Instant now) {
  life_.emplace(Life{.pid = pid, .dog = policy::Watchdog(now)});
}

void WorkerWatch::heard_hello() {
  if (life_) {
    life_->dog.heard_hello();
    up_ = true;
  }
}

void WorkerWatch::heard(const rpc::Beat& beat) {
  if (life_) {
    life_->dog.heard_beat(beat.threads);
  }
}

void WorkerWatch::ended(Instant now) {
  life_.reset();
  down_since_ = std::exchange(up_, false) ? now : down_since_;
  health_.trouble.clear();
}

std::optional<WorkerWatch::Hang> WorkerWatch::look(Instant now) {
  policy::Verdict verdict;
  if (life_ && life_->said != Health::kHung) {
    const auto signs =
        life_->dog.wants_signs() ? external::process_signs(life_->pid) : std::nullopt;
    verdict = life_->dog.judge(now, signs);
    say(*life_, verdict);
    health_.trouble = verdict.health >= Health::kSuspected ? "its worker may hang: " + verdict.why
                                                           : std::string();
  }
  if (!up_ && health_.trouble.empty() && now - down_since_ >= kDownPatience) {
    health_.trouble = "its worker is down";
  }
  if (verdict.health != Health::kHung) {
    return std::nullopt;
  }
  ++health_.hung.at(static_cast<std::size_t>(verdict.reason));
  return Hang{.reason = verdict.reason, .why = std::move(verdict.why)};
}

/// What has changed.
void WorkerWatch::say(Life& life, const policy::Verdict& verdict) {
  const Health before = std::exchange(life.said, verdict.health);
  if (before == verdict.health) {
    return;
  }
  const auto pid = static_cast<std::int64_t>(life.pid);
  if (verdict.health >= Health::kSuspected) {
    health_.suspected += before == Health::kSuspected ? 0 : 1;
    log::warning(verdict.health == Health::kHung ? "worker hangs" : "worker may hang",
                 {{"device", device_}, {"pid", pid}, {"why", verdict.why}});
  } else if (verdict.health == Health::kTraced) {
    log::info("worker is not watched", {{"device", device_}, {"pid", pid}, {"why", verdict.why}});
  } else if (before == Health::kSuspected) {
    log::info("worker goes on", {{"device", device_}, {"pid", pid}});
  }
}

}  // namespace heddle::agent
