#include "store/inspect.h"

#include <cstdio>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "store/inspect_render.h"

namespace heddle::cli {

int inspect(const std::string& path, bool json) {
  const Result<store::Inspection> inspection = store::inspect(path);
  if (!inspection) {
    return fail(inspection.error());
  }
  const std::string text =
      json ? store::render_json(*inspection) + "\n" : store::render_text(*inspection);
  std::fputs(text.c_str(), stdout);
  for (const std::string& problem : inspection->problems) {
    (void)fail({.code = Code::kCorrupt, .message = problem});  // The status is this verb's.
  }
  return inspection->problems.empty() ? 0 : 1;
}

}  // namespace heddle::cli
