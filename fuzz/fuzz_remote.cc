// What managers, hosts and gateways read of each other: the first byte says in which direction, the
// rest is a message. Whatever is accepted can be said again and is then understood in the same way;
// checks of what a message names, and ages of what it dates, end no process.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "history/load_book.h"
#include "remote/cache_messages.h"
#include "remote/edge_messages.h"
#include "remote/front_news.h"
#include "remote/known.h"
#include "remote/load_pieces.h"
#include "remote/messages.h"
#include "remote/stream_messages.h"

using namespace heddle;

namespace {

constexpr HostId kHost{3};
constexpr FrontId kFront{2};
constexpr Instant kNow{std::chrono::hours(1)};

template <class Message>
void check_again(const Result<Message>& message, Result<Message> (*decode)(std::string_view)) {
  if (!message) {
    HEDDLE_CHECK(!message.error().message.empty());
    return;
  }
  const std::string bytes = remote::encode(*message);
  const Result<Message> same = decode(bytes);
  HEDDLE_CHECK(same && remote::encode(*same) == bytes);
}

template <class Message>
Result<Message> read(std::string_view bytes, Result<Message> (*decode)(std::string_view)) {
  Result<Message> message = decode(bytes);
  check_again(message, decode);
  return message;
}

/// Whoever remembers loads can say them again.
void remember(const remote::Loads& loads) {
  history::LoadBook book;
  book.begin(loads.length, loads.keep);
  remote::put(loads, book);
  const remote::LoadPlace second = remote::place_after(remote::piece_from(book, {}));
  (void)remote::piece_from(book, second, &book);
}

/// What a manager does with a message of a host.
void hear_host(std::string_view bytes) {
  auto message = read(bytes, remote::decode_from_host);
  if (!message) {
    return;
  }
  const remote::KnownDevices devices(kHost, {{.id = device_id(kHost, 0), .page_bytes = 4096}});
  (void)devices.check(*message);
  if (const auto* here = std::get_if<remote::HostHere>(&*message)) {
    (void)remote::check_facts(here->facts, kHost, "h3");
  } else if (auto* status = std::get_if<remote::HostStatus>(&*message)) {
    remote::make_instants(*status, kNow);
  } else if (const auto* loads = std::get_if<remote::Loads>(&*message)) {
    (void)remote::check_answer(*loads, {.length = loads->length, .model = "chat", .window = 3});
    remember(*loads);
  }
}

/// What a host does with a message of a manager.
void hear_manager(std::string_view bytes) {
  const auto message = read(bytes, remote::decode_to_host);
  if (!message) {
    return;
  }
  remote::KnownModels models;
  HEDDLE_CHECK(models.take({{.name = "m", .digest = "d", .ids = {ModelId(7)}}}));
  if (const auto* wanted = std::get_if<remote::SetModels>(&*message)) {
    if (models.take(wanted->models)) {
      HEDDLE_CHECK(models.all().size() >= wanted->models.size());
    }
  } else if (const auto* load = std::get_if<core::LoadOn>(&*message)) {
    (void)remote::check_order(*load, remote::KnownDevices(), models);
  } else if (const auto* form = std::get_if<core::FormGroup>(&*message)) {
    (void)remote::check_order(*form, remote::KnownDevices(), models);
  } else if (const auto* loads = std::get_if<remote::Loads>(&*message)) {
    remember(*loads);
  } else if (const auto* tell = std::get_if<remote::TellLoads>(&*message)) {
    (void)remote::piece_from({}, {.model = tell->model, .window = tell->window});
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 12) {
    case 0:
      hear_manager(bytes);
      break;
    case 1:
      hear_host(bytes);
      break;
    case 2:
      (void)read(bytes, remote::decode_gateway_to_host);
      break;
    case 3:
      (void)read(bytes, remote::decode_host_to_gateway);
      break;
    case 4:
      if (const auto message = read(bytes, remote::decode_gateway_to_manager)) {
        (void)remote::check_news(*message, kFront);
      }
      break;
    case 6:
      (void)read(bytes, remote::decode_to_engines);
      break;
    case 7:
      (void)read(bytes, remote::decode_from_engines);
      break;
    case 8:
      (void)read(bytes, remote::decode_to_edge);
      break;
    case 9:
      (void)read(bytes, remote::decode_from_edge);
      break;
    case 10:
      (void)read(bytes, remote::decode_to_cache);
      break;
    case 11:
      (void)read(bytes, remote::decode_from_cache);
      break;
    default:
      if (auto message = read(bytes, remote::decode_manager_to_gateway)) {
        if (auto* status = std::get_if<remote::Status>(&*message)) {
          remote::make_instants(*status, kNow);
        }
      }
      break;
  }
  return 0;
}
