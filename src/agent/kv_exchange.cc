#include "agent/kv_exchange.h"

#include <utility>
#include <vector>

namespace heddle::agent {

void KvExchange::ask(rpc::KvAsk ask, bool here, KvAnswer answer) {
  const std::uint64_t number = ask.ask;
  const DeviceId device = ask.from.device;
  ask.ask = ++asked_;
  if (handlers_.tell(device, ask)) {
    open_[ask.ask] = {.device = device, .number = number, .answer = std::move(answer)};
  } else if (!here && handlers_.ask_host && !ask.from.host.name.empty()) {
    handlers_.ask_host(ask, [number, answer = std::move(answer)](rpc::KvGiven given) {
      given.ask = number;
      answer(std::move(given));
    });
  } else {
    answer({.ask = number, .begin = ask.begin, .end = ask.begin});
  }
}

void KvExchange::given(DeviceId device, rpc::KvGiven given) {
  const auto found = open_.find(given.ask);
  if (found == open_.end() || found->second.device != device) {
    return;
  }
  const Open open = std::move(open_.extract(found).mapped());
  given.ask = open.number;
  open.answer(std::move(given));
}

void KvExchange::ended(DeviceId device) {
  std::vector<Open> gone;
  for (auto at = open_.begin(); at != open_.end();) {
    if (at->second.device == device) {
      gone.push_back(std::move(at->second));
      at = open_.erase(at);
    } else {
      ++at;
    }
  }
  for (const Open& open : gone) {
    open.answer({.ask = open.number});
  }
}

}  // namespace heddle::agent
