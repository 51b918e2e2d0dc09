#include "gateway/connection_table.h"

#include <algorithm>

#include <boost/asio/ip/address.hpp>

namespace heddle::gateway {

void ConnectionTable::enter(Entry& entry, const std::string& address) {
  ByAddress& by = addresses_[address];
  if (by.count++ == 0) {
    by.name = address;
  }
  entry.address_ = &by;
  all_.push_back(entry);
  ++size_;
  begin_silence(entry, State::kFresh);
}

void ConnectionTable::leave(Entry& entry) {
  if (entry.address_ == nullptr) {
    return;
  }
  if (entry.state_ == State::kBusy) {
    end_request(entry);
  } else {
    end_silence(entry);
  }
  ByAddress& by = *std::exchange(entry.address_, nullptr);
  if (--by.count == 0) {
    addresses_.erase(std::string(by.name));
  }
  entry.in_all_.unlink();
  --size_;
}

void ConnectionTable::move(Entry& entry, State state) {
  if (entry.address_ == nullptr || entry.state_ == state) {
    return;
  }
  if (entry.state_ == State::kBusy) {
    end_request(entry);
  } else {
    end_silence(entry);
  }
  entry.state_ = state;
  if (state != State::kBusy) {
    begin_silence(entry, state);
  }
}

bool ConnectionTable::begin(Entry& entry, const std::string& client, std::size_t most) {
  if (entry.address_ == nullptr) {
    return true;  // It ends anyway.
  }
  std::size_t& count = requests_[client];
  if (count >= most) {
    return false;
  }
  ++count;
  move(entry, State::kBusy);
  entry.client_ = client;
  return true;
}

void ConnectionTable::end_request(Entry& entry) {
  const auto found = requests_.find(entry.client_);
  if (found != requests_.end() && --found->second == 0) {
    requests_.erase(found);
  }
  entry.client_.clear();
}

bool ConnectionTable::push_out() {
  if (silent_ == 0) {
    return false;
  }
  for (Entries& entries : ranks_[most_ - 1].front().silent) {
    if (!entries.empty()) {
      Entry& first = entries.front();
      leave(first);
      first.close();
      break;
    }
  }
  return true;
}

void ConnectionTable::begin_silence(Entry& entry, State state) {
  entry.state_ = state;
  ByAddress& by = *entry.address_;
  by.silent[static_cast<std::size_t>(state)].push_back(entry);
  ++by.silent_count;
  ++silent_;
  rank(by);
}

void ConnectionTable::end_silence(Entry& entry) {
  entry.in_state_.unlink();
  --entry.address_->silent_count;
  --silent_;
  rank(*entry.address_);
}

/// An address has one more silent connection, or one less.
void ConnectionTable::rank(ByAddress& address) {
  if (address.in_rank.is_linked()) {
    address.in_rank.unlink();
  }
  if (address.silent_count > 0) {
    if (ranks_.size() < address.silent_count) {
      ranks_.emplace_back();  // Counts change by one.
    }
    ranks_[address.silent_count - 1].push_back(address);
  }
  most_ = std::max(most_, address.silent_count);
  if (most_ > 0 && ranks_[most_ - 1].empty()) {
    --most_;
  }
}

std::string peer_group(const std::string& peer) {
  boost::system::error_code failure;
  const auto address = boost::asio::ip::make_address(peer, failure);
  if (failure || !address.is_v6()) {
    return peer;
  }
  const auto bytes = address.to_v6().to_bytes();
  if (address.to_v6().is_v4_mapped()) {
    return peer.substr(peer.rfind(':') + 1);
  }
  return {bytes.begin(), bytes.begin() + 8};
}

}  // namespace heddle::gateway
