#include "cluster/election_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "spec/json_fields.h"
#include "spec/json_writer.h"

namespace heddle::cluster {

using namespace election;

namespace {

constexpr std::int64_t kNumberMax = std::int64_t{1} << 62U;
constexpr int kHolderBits = 62;

/// Looks that are further apart than this count as this.
Duration step_max(const ElectionTimes& times) {
  return 2 * times.tick;
}

}  // namespace

std::string write_election_record(const ElectionRecord& record) {
  spec::JsonWriter json;
  json.begin_object().key("name").string(record.name).key("address").string(record.address);
  json.key("term").integer(record.term).key("holder").integer(record.holder);
  json.key("beat").integer(record.beat).end_object();
  return std::move(json).take();
}

Result<ElectionRecord> parse_election_record(std::string_view text) {
  const Result<spec::Json> json = spec::parse_json(text, "leader's record");
  if (!json) {
    return json.error();
  }
  spec::JsonFields fields(*json, "leader's record: ");
  const auto number = [&](std::string_view key) {
    return static_cast<std::uint64_t>(fields.integer(key, {0, kNumberMax}));
  };
  ElectionRecord record{.name = fields.text("name"),
                        .address = fields.text("address"),
                        .term = number("term"),
                        .holder = number("holder"),
                        .beat = number("beat")};
  return fields.ok() ? Result<ElectionRecord>(std::move(record))
                     : Error{Code::kCorrupt, fields.status().error().message};
}

ElectionCore::ElectionCore(ElectionTimes times, ElectionRecord self)
    : times_(times), self_(std::move(self)) {
  HEDDLE_CHECK(self_.holder != 0 && self_.holder >> kHolderBits == 0);
  HEDDLE_CHECK(times.renewal < times.give_up && times.give_up + step_max(times) < times.lease);
}

void ElectionCore::step(Instant now, const Event& event, std::vector<Command>& commands) {
  now_ = std::max(now_, now);
  look(commands);
  std::visit([&](const auto& each) { hear(each, commands); }, event);
  act(commands);
}

std::optional<Term> ElectionCore::leads(Instant now) const {
  const bool in_time = leading_ && std::max(now, now_) < leading_->until;
  return in_time ? std::optional(leading_->term) : std::nullopt;
}

/// Takes note of the time.
void ElectionCore::look(Commands& commands) {
  time_.look(now_, step_max(times_));
  if (leading_ && now_ >= leading_->until) {
    lose(Why::kUnreached, commands);
  }
}

void ElectionCore::hear(const Tick& /*event*/, Commands& /*commands*/) {}

void ElectionCore::hear(const Saw& event, Commands& commands) {
  // Of what a watch tells late, a read may have told more.
  if (known_ && event.revision > revision_) {
    accept(event.record, event.revision, commands);
  }
}

void ElectionCore::hear(const ReadDone& event, Commands& commands) {
  busy_ = false;
  if (!event.reached) {
    return;
  }
  if (event.revision != revision_ || event.record.has_value() != record_.has_value()) {
    went_back_ = event.record && event.revision < revision_;
    accept(event.record, event.revision, commands);
  }
  left_behind_ = record_ && record_->holder == self_.holder;
  known_ = true;
}

void ElectionCore::hear(const PutDone& event, Commands& commands) {
  HEDDLE_CHECK(sent_.has_value());
  busy_ = false;
  const Sent sent = *std::exchange(sent_, std::nullopt);
  if (event.outcome != PutDone::Outcome::kPut) {
    known_ = false;
    return;
  }
  if (event.revision > revision_) {  // Else a watch was faster.
    accept(sent.put.record, event.revision, commands);
  }
  left_behind_ = record_ && record_->holder == self_.holder;
  if (event.revision < revision_) {
    return;  // Somebody has put another since.
  }
  const Term term = sent.put.record.term;
  const Instant until = sent.at + times_.give_up;
  if (stopping_ || sent.put.record.holder == 0 || now_ >= until || term < highest_) {
    return;
  }
  if (leading_ && leading_->term == term) {
    leading_->until = until;
  } else if (!leading_ && sent.put.record.beat == 0) {
    leading_ = {.term = term, .until = until, .renew_at = sent.at + times_.renewal};
    commands.emplace_back(Elected{.term = term});
    tell_leader(commands);
  }
}

void ElectionCore::hear(const LostTrack& /*event*/, Commands& /*commands*/) {
  known_ = false;
}

void ElectionCore::hear(const HeardOf& event, Commands& commands) {
  highest_ = std::max(highest_, event.term);
  if (leading_ && leading_->term < highest_) {
    lose(Why::kSuperseded, commands);
  }
}

void ElectionCore::hear(const Stop& /*event*/, Commands& commands) {
  stopping_ = true;
  if (leading_) {
    lose(Why::kStopped, commands);
  }
}

/// The record is this from now on.
void ElectionCore::accept(const std::optional<ElectionRecord>& record,
                          Revision revision,
                          Commands& commands) {
  went_back_ = went_back_ && revision < revision_;
  record_ = record;
  revision_ = revision;
  changed_at_ = time_.sum();
  highest_ = std::max(highest_, record ? record->term : 0);
  left_behind_ = record && record->holder == self_.holder;
  if (leading_ && (highest_ > leading_->term || (record && record->holder != self_.holder))) {
    lose(Why::kSuperseded, commands);
  }
  tell_leader(commands);
}

/// Asks for what is due.
void ElectionCore::act(Commands& commands) {
  if (busy_ || over()) {
    return;
  }
  if (!known_) {
    busy_ = true;
    commands.emplace_back(Read{});
    return;
  }
  if (stopping_) {
    ElectionRecord left = *record_;
    left.holder = 0;
    put(std::move(left), commands);
    return;
  }
  if (leading_) {
    if (now_ >= leading_->renew_at && record_) {
      ElectionRecord next = *record_;
      ++next.beat;
      leading_->renew_at = now_ + times_.renewal;
      put(std::move(next), commands);
    }
    return;
  }
  if (is_free()) {
    ElectionRecord next = self_;
    next.term = highest_ + 1;
    put(std::move(next), commands);
  }
}

void ElectionCore::put(ElectionRecord record, Commands& commands) {
  busy_ = true;
  left_behind_ = left_behind_ || record.holder == self_.holder;
  sent_ =
      Sent{.put = {.expected = record_ ? revision_ : 0, .record = std::move(record)}, .at = now_};
  commands.emplace_back(sent_->put);
}

/// Whether this one may take over.
bool ElectionCore::is_free() const {
  const bool left = record_ && (record_->holder == 0 || record_->holder == self_.holder);
  return (left && !went_back_) || time_.sum() - changed_at_ >= times_.lease;
}

void ElectionCore::lose(Why why, Commands& commands) {
  leading_.reset();
  commands.emplace_back(Lost{.why = why});
  tell_leader(commands);
}

void ElectionCore::tell_leader(Commands& commands) {
  Leader now;
  if (record_ && record_->holder != 0 && (record_->holder != self_.holder || leading_)) {
    now = {.name = record_->name, .address = record_->address, .term = record_->term};
  }
  if (now != told_) {
    told_ = now;
    commands.emplace_back(std::move(now));
  }
}

}  // namespace heddle::cluster
