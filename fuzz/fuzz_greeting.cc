// What a process reads of another host before it knows it, and about the link after: greetings,
// beats and last words, the name in a certificate, and the certificate. Whatever is accepted can be
// said again and is then understood in the same way.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "net/certificate.h"
#include "net/identity.h"
#include "net/openssl.h"
#include "rpc/greet.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto message = heddle::rpc::decode_host_message(bytes)) {
    const std::string again = heddle::rpc::encode(*message);
    HEDDLE_CHECK(heddle::rpc::is_host_message(again));
    const auto same = heddle::rpc::decode_host_message(again);
    HEDDLE_CHECK(same && *same == *message);
  }
  if (const auto identity = heddle::net::parse_identity(bytes)) {
    HEDDLE_CHECK(identity->uri() == bytes);
  }
  const unsigned char* der = data;
  const heddle::net::X509Ptr certificate(d2i_X509(nullptr, &der, static_cast<long>(size)));
  if (certificate != nullptr) {
    const auto facts = heddle::net::facts_of(*certificate);
    if (facts && facts->identity) {
      const auto same = heddle::net::parse_identity(facts->identity->uri());
      HEDDLE_CHECK(same && *same == *facts->identity);
    }
    if (facts) {
      HEDDLE_CHECK(heddle::net::check_name("cluster", facts->cluster));
      (void)heddle::net::time_text(facts->until);
    }
  }
  return 0;
}
