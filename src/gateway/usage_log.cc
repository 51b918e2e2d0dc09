#include "gateway/usage_log.h"

namespace heddle::gateway {

namespace {

void add_counts(spec::KeyUsage& row, const spec::KeyUsage& used) {
  row.requests += used.requests;
  row.prompt_tokens += used.prompt_tokens;
  row.cached_tokens += used.cached_tokens;
  row.completion_tokens += used.completion_tokens;
}

}  // namespace

void UsageLog::add_to(Rows& rows, const spec::KeyUsage& used) {
  const auto [row, added] =
      rows.try_emplace({used.day, used.key, used.model},
                       spec::KeyUsage{.day = used.day, .key = used.key, .model = used.model});
  add_counts(row->second, used);
  if (added && rows.size() > kRowsMost) {
    const std::int64_t oldest = rows.begin()->second.day;
    rows.erase(rows.begin(), rows.lower_bound({oldest + 1, "", ""}));
  }
}

void UsageLog::add(const spec::KeyUsage& used) {
  add_to(rows_, used);
  add_to(unsaved_, used);
}

void UsageLog::restore(const std::vector<spec::KeyUsage>& saved) {
  for (const spec::KeyUsage& row : saved) {
    add_to(rows_, row);
  }
}

std::vector<spec::KeyUsage> UsageLog::since(std::int64_t from) const {
  std::vector<spec::KeyUsage> rows;
  for (auto row = rows_.lower_bound({from, "", ""}); row != rows_.end(); ++row) {
    rows.push_back(row->second);
  }
  return rows;
}

std::vector<spec::KeyUsage> UsageLog::take_unsaved() {
  std::vector<spec::KeyUsage> rows;
  for (auto& [place, row] : unsaved_) {
    rows.push_back(std::move(row));
  }
  unsaved_.clear();
  return rows;
}

std::vector<spec::KeyUsage> summed(const std::vector<spec::KeyUsage>& rows) {
  std::map<std::pair<std::string, std::string>, spec::KeyUsage> sums;
  for (const spec::KeyUsage& row : rows) {
    const auto [sum, added] = sums.try_emplace({row.key, row.model}, row);
    if (!added) {
      add_counts(sum->second, row);
    }
  }
  std::vector<spec::KeyUsage> all;
  for (auto& [place, row] : sums) {
    all.push_back(std::move(row));
  }
  return all;
}

}  // namespace heddle::gateway
