#include "fetch/pull.h"

#include <utility>

#include "fetch/source_name.h"

namespace heddle::fetch {

Result<Pulled> pull(std::string_view model,
                    const PullOptions& options,
                    PullWatch& watch,
                    const std::stop_token& stop) {
  Result<SourceName> name = parse_source_name(model);
  if (!name) {
    return name.error();
  }
  ModelFetch fetch(std::move(name).value(), options, watch, stop);
  if (const Result<void> opened = fetch.open(); !opened) {
    return opened.error();
  }
  const Result<std::vector<Job>> jobs = fetch.missing();
  if (!jobs) {
    return jobs.error();
  }
  if (!jobs->empty()) {
    if (const Result<void> room = fetch.make_place(needed_bytes(*jobs)); !room) {
      return room.error();
    }
  }
  fetch.tell_begin(*jobs);
  if (const Result<void> fetched = fetch.fetch(*jobs, options.transfer); !fetched) {
    return fetched.error();
  }
  Pulled pulled{.revision = fetch.revision(), .files = fetch.wanted().size()};
  for (const Object& object : fetch.wanted()) {
    pulled.bytes += object.bytes;
  }
  for (const Job& job : *jobs) {
    pulled.fetched_bytes += job.object.bytes;
  }
  Result<std::filesystem::path> directory = fetch.publish();
  if (!directory) {
    return directory.error();
  }
  pulled.directory = std::move(directory).value();
  return pulled;
}

}  // namespace heddle::fetch
