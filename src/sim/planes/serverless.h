#pragma once

#include "sim/planes/support.h"

namespace heddle::sim {

/// What the serverless baselines differ in.
enum class ServerlessKind : std::uint8_t {
  kVllm,  ///< Stock engines: container, imports, fetch, load, one after the other; from the store.
  kLlm,   ///< ServerlessLLM: a streaming loader and server memory as a cache; exclusive GPUs.
};

/// Serverless vLLM and ServerlessLLM (PAPERS 3): one GPU per instance (tp of them for models that
/// need it), instances by queue length, keep-alive after the last request.
/// Flags: `keep_alive` [s] (30), `target` requests per instance (8), `cache` (1, ServerlessLLM),
/// `kv_gb` beside the weights (5).
class ServerlessPlane final : public ControlPlane {
 public:
  ServerlessPlane(ServerlessKind kind, Flags& flags);
  [[nodiscard]] ComputeSharing compute_sharing() const override {
    return kind_ == ServerlessKind::kVllm ? ComputeSharing::kByMemory : ComputeSharing::kAddUp;
  }
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  void scale_up(const World& world, Actions& actions, ModelId model);
  bool start_one(const World& world, Actions& actions, ModelId model);
  [[nodiscard]] StartSpec cold_start(const World& world, ModelId model, GpuId gpu) const;
  [[nodiscard]] std::optional<std::vector<GpuId>> choose(const World& world, ModelId model);
  [[nodiscard]] std::optional<std::vector<GpuId>> group_on(const World& world,
                                                           ModelId model,
                                                           HostId host) const;
  [[nodiscard]] std::int64_t pages_needed(const World& world, ModelId model) const;
  void update_room(const World& world, HostId host);

  ServerlessKind kind_;
  Duration keep_alive_;
  std::int64_t target_;
  bool cache_;
  double kv_bytes_;
  RequestQueues queues_{};
  Exhausted exhausted_{};
  RoomIndex room_{};                              ///< By GPUs that are empty.
  std::map<ModelId, std::set<HostId>> images_{};  ///< Servers whose memory had its weights lately.
  std::set<ModelId> short_of_gpus_{};             ///< Wanted an instance and found no room.
};

}  // namespace heddle::sim
