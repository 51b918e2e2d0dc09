#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "ledger/ledger.h"
#include "policy/admission.h"
#include "rpc/messages.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"
#include "spec/sampling.h"
#include "worker.pb.h"

/// Values of ours to and from their protobuf twins. Private to this folder: it alone sees the
/// generated header.
namespace heddle::rpc {

/// Looks at what comes from the wire and remembers the first thing that cannot be. A conversion
/// goes on with some harmless value; whoever began it asks for the failure at the end.
class WireCheck {
 public:
  /// An enumerator from its number; `last` is the greatest there is.
  template <class Enum>
  Enum enumerator(std::uint64_t number, Enum last, const char* what) {
    const auto most = static_cast<std::uint64_t>(last);
    if (number > most) {
      fail(std::string(what) + " " + std::to_string(number) + "; the greatest known is " +
           std::to_string(most));
      return Enum{};
    }
    return static_cast<Enum>(number);
  }
  /// A number of things, which cannot be negative.
  std::int64_t count(std::int64_t value, const char* what);

  void fail(std::string message);
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

 private:
  std::optional<Error> failure_{};
};

void to_wire(const Error& error, wire::Failure& out);
void to_wire(const spec::ModelSpec& model, wire::ModelSpec& out);
void to_wire(const spec::SamplingParams& params, wire::SamplingParams& out);
void to_wire(const policy::Footprint& footprint, wire::Footprint& out);
void to_wire(const ledger::PoolUsage& usage, wire::PoolUsage& out);
void to_wire(const Beat& beat, wire::Beat& out);
[[nodiscard]] wire::DType to_wire(spec::DType dtype);

[[nodiscard]] Error from_wire(const wire::Failure& in, WireCheck& check);
[[nodiscard]] spec::ModelSpec from_wire(const wire::ModelSpec& in, WireCheck& check);
[[nodiscard]] spec::SamplingParams from_wire(const wire::SamplingParams& in, WireCheck& check);
[[nodiscard]] policy::Footprint from_wire(const wire::Footprint& in, WireCheck& check);
[[nodiscard]] ledger::PoolUsage from_wire(const wire::PoolUsage& in, WireCheck& check);
[[nodiscard]] Beat from_wire(const wire::Beat& in, WireCheck& check);
[[nodiscard]] spec::DType from_wire(wire::DType dtype, WireCheck& check);

}  // namespace heddle::rpc
