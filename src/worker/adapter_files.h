#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/thread.h"
#include "policy/batching.h"
#include "spec/adapter_source.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"
#include "store/adapter.h"

namespace heddle::worker {

/// Opens the adapters that sequences name, in a thread of its own, so that steps go on while files
/// are read for the first time. What it opens it reads through once: from then on the system has it
/// in its cache, from which the engine fills pages in some milliseconds. Those used last stay open.
/// The methods are for one other thread, the engine's.
class AdapterFiles {
 public:
  using SequenceId = policy::SequenceId;
  using Handle = std::shared_ptr<const store::Adapter>;

  /// So many stay open that nobody uses.
  static constexpr std::size_t kOpenMax = 64;

  /// `on_opened` is called in the thread when take() has an answer for this sequence.
  explicit AdapterFiles(std::function<void(SequenceId)> on_opened);
  /// Waits for what is being opened.
  ~AdapterFiles();
  AdapterFiles(const AdapterFiles&) = delete;
  AdapterFiles& operator=(const AdapterFiles&) = delete;

  /// The adapters of a model from now on, and what it is: matrices of `weights`.
  void describe(ModelId model,
                const spec::ModelSpec& spec,
                spec::DType weights,
                const std::vector<spec::AdapterSource>& sources);

  /// Asks for the adapter of a sequence. At once, if it is open and its files are those that were
  /// opened; null: then `on_opened` follows. kNotFound where the model has none of that name;
  /// kUnavailable where the thread cannot be started.
  [[nodiscard]] Result<Handle> ask(SequenceId sequence, ModelId model, const std::string& name);
  /// What a sequence has asked for and not got at once; nothing while it is being opened. kCorrupt,
  /// with what Adapter::open has to say, where it cannot be used.
  [[nodiscard]] std::optional<Result<Handle>> take(SequenceId sequence);
  /// A sequence that has asked needs it no more.
  void forget(SequenceId sequence);
  /// What the model's adapter of this identity is called; empty where that is not known any more.
  [[nodiscard]] std::string name_of(ModelId model, const std::string& identity) const;

 private:
  struct Model {
    spec::ModelSpec spec{};
    spec::DType weights = spec::DType::kBf16;
    std::map<std::string, std::string> directories{};  ///< By name.
    std::map<std::string, std::string> names{};        ///< By identity, of those opened.
  };
  struct Job {
    SequenceId sequence{};
    std::string directory{};
    spec::ModelSpec spec{};
    spec::DType weights = spec::DType::kBf16;
    std::pair<ModelId, std::string> name{};
  };
  struct Open {
    std::pair<ModelId, std::string> name{};
    Handle adapter{};
  };

  void run();
  [[nodiscard]] Handle find_open(const std::pair<ModelId, std::string>& name,
                                 const std::string& directory);
  void keep(const std::pair<ModelId, std::string>& name, const Handle& adapter);

  std::function<void(SequenceId)> on_opened_;

  mutable std::mutex mutex_{};  ///< Guards all below.
  std::condition_variable changed_{};
  std::map<ModelId, Model> models_{};
  std::list<Job> jobs_{};
  std::optional<SequenceId> opening_{};  ///< For whom one is being opened, unless it was forgotten.
  std::map<SequenceId, Result<Handle>> opened_{};
  std::list<Open> open_{};  ///< Used last: first.
  bool ending_ = false;
  std::optional<Thread> thread_{};  ///< From the first ask() on.
};

}  // namespace heddle::worker
