#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace heddle::lab {

/// A web server on loopback that has models' folders: what the hosts of a run fetch from, where no
/// host has them. It answers requests for ranges, on a thread of its own.
class ModelSite {
 public:
  /// Begins to serve these folders. Errors as gateway::HttpServer::listen, and kUnavailable where
  /// no thread is to be had.
  static Result<std::unique_ptr<ModelSite>> start(std::vector<std::string> folders);
  /// Hangs up, and ends.
  ~ModelSite();
  ModelSite(const ModelSite&) = delete;
  ModelSite& operator=(const ModelSite&) = delete;

  /// Where the folder at `index` is, such as "http://127.0.0.1:40123/2". Two folders that are the
  /// same one are at two addresses, and so two models to whoever fetches them.
  [[nodiscard]] std::string url(std::size_t index) const;

 private:
  class Impl;
  explicit ModelSite(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::lab
