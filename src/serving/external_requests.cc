#include "serving/external_requests.h"

#include <algorithm>
#include <utility>

namespace heddle::serving {

void ExternalRequests::add(std::shared_ptr<core::ExternalRequest> request,
                           std::shared_ptr<core::ExternalSink> sink) {
  const RequestId id = request->id;
  entries_[id] = {.request = std::move(request), .sink = std::move(sink)};
}

ExternalRequests::Entry* ExternalRequests::find(RequestId request) {
  const auto found = entries_.find(request);
  return found == entries_.end() ? nullptr : &found->second;
}

std::optional<ExternalRequests::Entry> ExternalRequests::remove(RequestId request) {
  const auto found = entries_.find(request);
  if (found == entries_.end()) {
    return std::nullopt;
  }
  Entry entry = std::move(found->second);
  entries_.erase(found);
  return entry;
}

void ExternalRequests::note(ModelId model, core::IncidentKind kind, Instant now) {
  for (const auto& [id, entry] : entries_) {
    if (!entry.forwarded || entry.request->model != model) {
      continue;
    }
    std::vector<core::Incident>& incidents = entry.request->incidents;
    const bool suspended =
        !incidents.empty() && incidents.back().kind == core::IncidentKind::kSuspended;
    // An engine is brought back for requests that it had, or comes for those that it gets.
    if (kind != core::IncidentKind::kAwoken || suspended) {
      core::note(incidents, {.at = now, .kind = kind, .device = entry.request->device});
    }
  }
}

std::vector<ExternalRequests::Entry> ExternalRequests::lose(ModelId model, Instant now) {
  note(model, core::IncidentKind::kLost, now);
  std::vector<Entry> lost;
  for (auto& [id, entry] : entries_) {
    if (entry.forwarded && entry.request->model == model) {
      entry.forwarded = false;
      ++entry.request->restarts;
      lost.push_back(entry);
    }
  }
  std::sort(lost.begin(), lost.end(), [](const Entry& a, const Entry& b) {
    return a.request->id < b.request->id;
  });
  return lost;
}

core::RequestArrived ExternalRequests::arrival(const core::ExternalRequest& request, Instant now) {
  core::RequestArrived arrived{
      .request = request.id, .model = request.model, .priority = request.priority};
  if (request.deadline) {
    arrived.patience = *request.deadline - now;
  }
  return arrived;
}

std::vector<core::Unfinished> ExternalRequests::unfinished(Instant now) const {
  std::vector<core::Unfinished> all;
  for (const auto& [id, entry] : entries_) {
    all.push_back({.request = arrival(*entry.request, now),
                   .age = now - entry.request->times.arrived,
                   .device = entry.forwarded ? entry.request->device : std::nullopt});
  }
  std::ranges::sort(all, {}, [](const core::Unfinished& one) { return one.request.request; });
  return all;
}

std::optional<Instant> ExternalRequests::silent_since(ModelId model) const {
  std::optional<Instant> since;
  for (const auto& [id, entry] : entries_) {
    if (entry.forwarded && entry.request->model == model) {
      since = std::max(since.value_or(Instant{}), entry.request->heard);
    }
  }
  return since;
}

}  // namespace heddle::serving
