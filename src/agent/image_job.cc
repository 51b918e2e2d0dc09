#include "agent/image_job.h"

#include <string>
#include <utility>

#include "spec/pipe_stage.h"
#include "spec/shard.h"

namespace heddle::agent {

ImageJob image_job(ModelId id, const HostModel& model, std::size_t page_bytes) {
  return {.model = id,
          .directory = model.directory,
          .dtype = model.dtype,
          .shard = model.spec.shard,
          .stage = model.spec.stage,
          .expert_slots = model.spec.experts.slots,
          .image_bytes = model.image_bytes,
          .page_bytes = page_bytes};
}

Result<OpenedImage> open_image(const ImageJob& job) {
  Result<store::Checkpoint> checkpoint = store::Checkpoint::open(job.directory);
  if (!checkpoint) {
    return checkpoint.error();
  }
  const spec::ModelSpec& whole = checkpoint->config.model;
  if (const Result<void> possible = spec::divides(whole, job.shard.ranks); !possible) {
    return possible.error();  // It has changed; and the next check is for what can be laid out.
  }
  spec::ModelSpec shard = spec::shard_of(whole, job.shard);
  shard.experts.slots = job.expert_slots;
  const spec::PipeStage stage =
      spec::is_stage(job.stage, whole.layers) ? job.stage : spec::PipeStage{};
  store::ImageLayout layout = store::plan_image(spec::stage_of(shard, stage), job.dtype);
  if (layout.bytes != job.image_bytes || stage != job.stage) {
    return Error{Code::kFailedPrecondition,
                 "read " + job.directory.string() +
                     ": it has changed since the configuration was "
                     "read (an image of " +
                     std::to_string(layout.bytes) + " bytes, not " +
                     std::to_string(job.image_bytes) + "); reload the configuration"};
  }
  return OpenedImage{.checkpoint = std::move(checkpoint).value(), .layout = std::move(layout)};
}

Result<void> read_image(const ImageJob& job,
                        const OpenedImage& opened,
                        const store::LoadOptions& options) {
  return store::load_image(opened.checkpoint.tensors,
                           opened.layout,
                           {.pages = job.pages, .page_bytes = job.page_bytes},
                           options);
}

}  // namespace heddle::agent
