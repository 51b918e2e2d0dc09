// What the registries of a cluster are answered, and what stands in their records and files: by
// etcd, an API server of Kubernetes, other versions of heddle, or somebody else. The first byte
// chooses which of these the rest is.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "cluster/election_core.h"
#include "cluster/etcd_wire.h"
#include "cluster/file_log.h"
#include "cluster/kubernetes_wire.h"
#include "cluster/line_splitter.h"
#include "cluster/membership.h"
#include "cluster/registry_url.h"

using namespace heddle::cluster;

namespace {

void read_etcd(std::string_view text) {
  const auto range = etcd::parse_range(text);
  if (range) {
    for (const Record& each : range->records) {
      HEDDLE_CHECK(!each.key.empty() && each.revision > 0);
    }
  }
  const auto line = etcd::parse_watch_line(text);
  if (line) {
    for (const Change& each : line->changes) {
      HEDDLE_CHECK(each.kind != Change::Kind::kLost && each.record.revision > 0);
    }
  }
  (void)etcd::parse_txn(text);
  const auto lease = etcd::parse_lease(text);
  HEDDLE_CHECK(!lease || lease->seconds > 0);
  (void)etcd::parse_keep_alive(text);
}

void read_kubernetes(std::string_view text) {
  const auto object = kubernetes::parse_object(text);
  if (object) {
    HEDDLE_CHECK(object->revision > 0 && object->value.size() <= kValueMax);
    const auto again =
        kubernetes::parse_object(kubernetes::write_object(*object, "g", object->revision));
    HEDDLE_CHECK(again && again->value == object->value && again->life == object->life);
  }
  const auto page = kubernetes::parse_page(text);
  HEDDLE_CHECK(!page || page->revision > 0);
  (void)kubernetes::parse_event(text);
  (void)kubernetes::message_of(text);
  if (const auto key = kubernetes::key_of("g", text)) {
    HEDDLE_CHECK(kubernetes::name_of("g", *key) == text);
  }
}

void read_records(std::string_view text) {
  const auto line = parse_log_line(text);
  if (line) {
    const auto again = parse_log_line(write_log_line(*line));
    HEDDLE_CHECK(again && again->record.key == line->record.key && again->life == line->life);
    HEDDLE_CHECK(line->removed || again->record == line->record);
  }
  (void)parse_log_head(text);
  const auto leader = parse_election_record(text);
  HEDDLE_CHECK(!leader || parse_election_record(write_election_record(*leader)));
  const auto member = parse_member_record(text);
  HEDDLE_CHECK(!member || parse_member_record(write_member_record(*member)));
}

void read_stream(std::string_view text) {
  LineSplitter whole(64);
  LineSplitter parts(64);
  std::string of_whole;
  std::string of_parts;
  whole.feed(text,
             [&](std::string_view line) { return !of_whole.append(line).append("\n").empty(); });
  for (const char each : text) {
    parts.feed({&each, 1},
               [&](std::string_view line) { return !of_parts.append(line).append("\n").empty(); });
  }
  HEDDLE_CHECK(of_whole == of_parts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      read_etcd(text);
      break;
    case 1:
      read_kubernetes(text);
      break;
    case 2:
      read_records(text);
      break;
    case 3:
      read_stream(text);
      break;
    default: {
      const auto url = parse_registry_url(text);
      HEDDLE_CHECK(url || !url.error().message.empty());
    }
  }
  return 0;
}
