#include <algorithm>
#include <utility>

#include "core/worker_core_impl.h"

/// What the models of a device share beside pages of their own.
namespace heddle::core {
namespace {

/// Recordings come when so many times their pages can be had, so that they do not come and go with
/// the KV of a sequence or two.
constexpr std::int64_t kRecordingsRoom = 2;

}  // namespace

/// The workspace that the models need, with one of `pages`. One that is being closed counts until
/// it is gone: what comes in its place finds it there.
std::int64_t WorkerCore::Impl::workspace_with(std::int64_t pages) const {
  for (const auto& [id, model] : models_) {
    pages = std::max(pages, model.footprint.overhead_pages);
  }
  return pages;
}

void WorkerCore::Impl::fit_workspace() {
  const std::int64_t pages = workspace_with(0);
  if (pages == workspace_pages_) {
    return;
  }
  move_pages(workspace_, std::exchange(workspace_pages_, pages), pages);
  act(FitWorkspace{.pages = pages});
  counts_changed_ = true;
}

std::int64_t WorkerCore::Impl::recordings_wanted() const {
  std::int64_t pages = 0;
  for (const auto& [id, model] : models_) {
    pages = std::max(pages, model.footprint.recording_pages);
  }
  return std::min(pages, options_.recording_pages);
}

/// Recordings have their pages while these can be spared.
void WorkerCore::Impl::tend_recordings() {
  const std::int64_t wanted = recordings_wanted();
  if (recordings_asked_ || recordings_stuck_ || wanted == recordings_pages_) {
    return;
  }
  if (wanted < recordings_pages_) {
    keep_recordings(wanted);
    return;
  }
  const std::int64_t more = wanted - recordings_pages_;
  const std::int64_t free = ledger_.usage(pool_).free;
  if (crowded_ || stalled_ || !operations_.empty() ||
      free + cached_pages_ < kRecordingsRoom * more) {
    return;
  }
  if (more > free) {
    trim_cached(cached_pages_ - (more - free), ledger::DropReason::kLoad);
  }
  move_pages(recordings_, std::exchange(recordings_pages_, wanted), wanted);
  keep_recordings(wanted);
}

/// Asks for the pages of recordings; false where there are none to be had.
bool WorkerCore::Impl::give_up_recordings() {
  if (recordings_pages_ == 0 || recordings_stuck_) {
    return false;
  }
  if (!recordings_asked_) {
    keep_recordings(0);
  }
  return true;
}

void WorkerCore::Impl::keep_recordings(std::int64_t pages) {
  recordings_asked_ = pages;
  act(KeepRecordings{.pages = pages});
}

void WorkerCore::Impl::on(const RecordingsKept& kept) {
  HEDDLE_CHECK(recordings_asked_ && kept.pages <= recordings_pages_);
  recordings_stuck_ = kept.pages > *std::exchange(recordings_asked_, std::nullopt);
  move_pages(recordings_, std::exchange(recordings_pages_, kept.pages), kept.pages);
  stalled_ = false;  // Crowded it still is: what came free is for who starved, not for recordings.
  counts_changed_ = true;
}

}  // namespace heddle::core
