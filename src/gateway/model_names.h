#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "gateway/model_queue.h"

namespace heddle::gateway {

/// How a model stands that a selector may choose.
enum class Standing : std::uint8_t {
  kAway,     ///< It is not in memory, or not known to be.
  kComing,   ///< It is being loaded, started or resumed.
  kReady,    ///< It answers at once.
  kLeaving,  ///< It is on its way out.
};

/// The names that stand for models: selectors, and the pins of the profile that is active. Loop
/// thread.
class ModelNames {
 public:
  using Look = std::function<Standing(const std::string& model)>;

  /// The model that a request is for.
  struct Meant {
    std::string model{};         ///< Empty: the profile says that there is none of the name.
    ModelQueue::Places place{};  ///< Among the requests that a selector has sent to its target.
  };

  /// Takes over what is configured; no profile is active from then on.
  void assign(const config::Config& config);
  /// Whether no name can stand for another.
  [[nodiscard]] bool empty() const { return selectors_.empty() && pins() == nullptr; }

  /// What a name means, first by the active profile, then by selectors; nothing: itself. A
  /// ":latest" behind it is not looked at.
  /// @param look  Asked for the targets of a selector.
  [[nodiscard]] std::optional<Meant> resolve(std::string_view name, const Look& look);
  /// By the active profile alone; nothing: itself.
  [[nodiscard]] std::optional<std::string> pinned(std::string_view name) const;

  [[nodiscard]] const std::vector<config::SelectorConfig>& selectors() const { return selectors_; }
  /// The selector of this name; null: there is none.
  [[nodiscard]] const config::SelectorConfig* selector(std::string_view name) const;
  [[nodiscard]] const std::vector<config::ProfileConfig>& profiles() const { return profiles_; }
  /// The id of the active profile; empty: none is.
  [[nodiscard]] const std::string& active() const { return active_; }
  /// Makes a profile active, or none where the id is empty. False where there is none of that id.
  bool activate(const std::string& id);

 private:
  [[nodiscard]] const config::ProfileConfig* pins() const;
  [[nodiscard]] Meant choose(const config::SelectorConfig& selector, const Look& look);
  [[nodiscard]] std::string spill(const config::SelectorConfig& selector, const Look& look);

  std::vector<config::SelectorConfig> selectors_{};
  std::vector<config::ProfileConfig> profiles_{};
  std::string active_{};
  /// By selector and target: the requests that have not ended.
  std::map<std::string, std::map<std::string, ModelQueue>> sent_{};
};

}  // namespace heddle::gateway
