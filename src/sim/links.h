#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "policy/links.h"

namespace heddle::sim {

using policy::LinkClass;
using policy::LinkId;
using policy::LinkRule;
using policy::TransferId;

/// The links of one server, which transfers contend for: NIC, memory bus, PCIe, NVLink, disk.
/// Transfers are fluid; at which rate each moves is policy::share_links' decision, taken anew
/// whenever one starts, ends or changes, or a link gets slower. Each call but the getters costs
/// what share_links does for the transfers of this server: it does not grow with the cluster.
class HostLinks {
 public:
  explicit HostLinks(LinkRule rule) : rule_(rule) {}

  /// Links have ids from 0 in the order in which they are added.
  LinkId add_link(double bytes_per_second);

  /// Starts `bytes` > 0 at `now`; the id is higher than all before it.
  void start(Instant now, double bytes, policy::Transfer transfer);
  /// Takes a transfer off; what was left of it [bytes], 0 when there is no such transfer.
  double cancel(Instant now, TransferId id);
  /// Changes its class; it keeps its deadline and what it has moved.
  void reclassify(Instant now, TransferId id, LinkClass link_class);
  void set_rate(Instant now, LinkId link, double bytes_per_second);

  /// When the next transfer will be done if nothing changes; nullopt when none ever will.
  [[nodiscard]] std::optional<Instant> next_done() const;
  /// Takes the transfers that are done at `now`, by id.
  std::vector<TransferId> take_done(Instant now);

  [[nodiscard]] std::size_t transfers() const { return transfers_.size(); }
  /// Transfers that cross a link.
  [[nodiscard]] std::size_t users(LinkId link) const;
  [[nodiscard]] double rate(LinkId link) const { return links_[link.value()].bytes_per_second; }

 private:
  void advance(Instant now);
  void share() { rates_ = policy::share_links(links_, transfers_, rule_); }
  [[nodiscard]] std::size_t find(TransferId id) const;
  void erase(std::size_t index);

  LinkRule rule_;
  std::vector<policy::LinkView> links_{};
  std::vector<policy::Transfer> transfers_{};  ///< By id.
  std::vector<double> left_{};                 ///< Of each [bytes].
  std::vector<double> rates_{};                ///< Of each [bytes/s].
  Instant advanced_{};
};

}  // namespace heddle::sim
