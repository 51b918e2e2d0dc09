#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "lab/lab_file.h"
#include "lab/model_site.h"
#include "lab/server_process.h"

namespace heddle::lab {

/// What answers in a run: `heddle serve`, or where the policy has hosts a cluster of them with a
/// manager and a gateway, whose processes are joined by links over loopback. All are killed with
/// this object.
class Servers {
 public:
  /// Starts them afresh, with configurations, certificates, data and logs in `folder`, and waits
  /// until each has said where it is. kUnavailable, with the end of its log, of one that does not
  /// come up within `patience`; otherwise as the folder and the certificates are written.
  /// @param cold  As LabFile has it.
  static Result<std::unique_ptr<Servers>> start(const std::string& program,
                                                const LabPolicy& policy,
                                                const std::string& folder,
                                                bool cold,
                                                Duration patience);
  /// Where requests go, such as "http://127.0.0.1:40123".
  [[nodiscard]] const std::string& url() const { return processes_.back()->url(); }

  /// Ends them as an operator would, who takes requests first, and kills them after so long each.
  /// The first error, when one ended otherwise than with status 0.
  Result<void> stop(Duration patience);

 private:
  std::unique_ptr<ModelSite> site_{};  ///< Where hosts fetch models, if they do.
  /// In the order in which they start; the last one takes requests.
  std::vector<std::unique_ptr<ServerProcess>> processes_{};
};

}  // namespace heddle::lab
