#include <algorithm>
#include <utility>

#include "core/worker_core_impl.h"

/// What the models of a device share beside pages of their own.
namespace heddle::core {
namespace {

/// CUDA graphs come when so many times their pages can be had, so that they do not come and go with
/// the KV of a sequence or two.
constexpr std::int64_t kGraphsRoom = 2;

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

std::int64_t WorkerCore::Impl::graphs_wanted() const {
  std::int64_t pages = 0;
  for (const auto& [id, model] : models_) {
    pages = std::max(pages, model.footprint.graph_pages);
  }
  return std::min(pages, options_.graph_pages);
}

/// CUDA graphs have their pages while these can be spared.
void WorkerCore::Impl::tend_graphs() {
  const std::int64_t wanted = graphs_wanted();
  if (graphs_asked_ || graphs_stuck_ || wanted == graph_pages_) {
    return;
  }
  if (wanted < graph_pages_) {
    keep_graphs(wanted);
    return;
  }
  const std::int64_t more = wanted - graph_pages_;
  const std::int64_t free = ledger_.usage(pool_).free;
  if (crowded_ || stalled_ || !operations_.empty() || free + cached_pages_ < kGraphsRoom * more) {
    return;
  }
  if (more > free) {
    trim_cached(cached_pages_ - (more - free), ledger::DropReason::kLoad);
  }
  move_pages(graphs_, std::exchange(graph_pages_, wanted), wanted);
  keep_graphs(wanted);
}

/// Asks for the pages of CUDA graphs; false where there are none to be had.
bool WorkerCore::Impl::give_up_graphs() {
  if (graph_pages_ == 0 || graphs_stuck_) {
    return false;
  }
  if (!graphs_asked_) {
    keep_graphs(0);
  }
  return true;
}

void WorkerCore::Impl::keep_graphs(std::int64_t pages) {
  graphs_asked_ = pages;
  act(KeepGraphs{.pages = pages});
}

void WorkerCore::Impl::on(const GraphsKept& kept) {
  HEDDLE_CHECK(graphs_asked_ && kept.pages <= graph_pages_);
  graphs_stuck_ = kept.pages > *std::exchange(graphs_asked_, std::nullopt);
  move_pages(graphs_, std::exchange(graph_pages_, kept.pages), kept.pages);
  stalled_ = false;  // Crowded it still is: what came free is for who starved, not for CUDA graphs.
  counts_changed_ = true;
}

}  // namespace heddle::core
