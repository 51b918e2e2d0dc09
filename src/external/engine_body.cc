#include "external/engine_body.h"

#include <cctype>
#include <utility>

#include "external/command_body.h"
#include "external/container_body.h"

namespace heddle::external {

namespace asio = boost::asio;

namespace {

/// Somebody else runs it: there is nothing to start, to freeze or to end.
class NobodysBody final : public EngineBody {
 public:
  asio::awaitable<Result<void>> begin(Duration) override { co_return Result<void>(); }
  asio::awaitable<void> end(Duration) override {
    ended_ = "it is left to whoever runs it";
    co_return;
  }
  [[nodiscard]] std::shared_ptr<ProcessSet> processes() const override { return nullptr; }
  [[nodiscard]] std::optional<std::string> ended() const override { return ended_; }
  [[nodiscard]] std::vector<std::string> last_lines() const override { return {}; }

 private:
  std::optional<std::string> ended_{};
};

}  // namespace

std::unique_ptr<EngineBody> make_body(const asio::any_io_executor& executor, BodySetup setup) {
  if (!setup.config.container.image.empty()) {
    return make_container_body(executor, std::move(setup));
  }
  if (!setup.config.command.empty()) {
    return make_command_body(executor, std::move(setup));
  }
  return std::make_unique<NobodysBody>();
}

std::string safe_label(const std::string& model) {
  std::string label = model;
  for (char& letter : label) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '-' && letter != '_' &&
        letter != '.') {
      letter = '-';
    }
  }
  return label;
}

}  // namespace heddle::external
