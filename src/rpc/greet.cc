#include "rpc/greet.h"

#include <algorithm>

#include "base/wire.h"
#include "rpc/greet_fields.h"

namespace heddle::rpc {

namespace {

constexpr std::uint32_t kNumberLeast = 150;
constexpr std::uint32_t kNumberMost = 159;

std::string text_of(const Versions& versions) {
  return std::to_string(versions.least) + " to " + std::to_string(versions.most);
}

}  // namespace

Result<std::uint32_t> common_version(const Versions& ours, const Versions& theirs) {
  const std::uint32_t common = std::min(ours.most, theirs.most);
  if (common < std::max(ours.least, theirs.least)) {
    return Error{.code = Code::kFailedPrecondition,
                 .message = "one speaks the versions " + text_of(ours) + ", the other " +
                            text_of(theirs) +
                            "; want neighbours: upgrade the older one first to what lies between"};
  }
  return common;
}

std::string encode(const HostMessage& message) {
  return wire::encode(message);
}

Result<HostMessage> decode_host_message(std::string_view bytes) {
  return wire::decode<HostMessage>(bytes);
}

bool is_host_message(std::string_view bytes) {
  // A message begins with its number, shifted by the three bits of its form: two bytes for these.
  if (bytes.size() < 2) {
    return false;
  }
  const auto low = static_cast<unsigned char>(bytes[0]);
  const auto high = static_cast<unsigned char>(bytes[1]);
  const std::uint32_t number = ((low & 0x7fU) | std::uint32_t{high} << 7U) >> 3U;
  return low >= 0x80U && high < 0x80U && number >= kNumberLeast && number <= kNumberMost;
}

}  // namespace heddle::rpc
