#pragma once

#include "fetch/source.h"

namespace heddle::fetch {

/// A folder of this machine, which may be another's disk.
class FileSource final : public Source {
 public:
  explicit FileSource(const SourceName& name) : name_(name) {}

  [[nodiscard]] Result<Listing> list(const std::stop_token& stop) override;
  [[nodiscard]] Result<void> read(const Object& object,
                                  Range range,
                                  const Sink& sink,
                                  const std::stop_token& stop) override;

 private:
  SourceName name_;
};

}  // namespace heddle::fetch
