#pragma once

#include "base/result.h"

#include <curl/curl.h>

namespace heddle::fetch {

/// What is called of libcurl, which is loaded when the first model is fetched: it and its thirty
/// libraries are megabytes and milliseconds of every process that is linked with it.
struct CurlLibrary {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_reset) easy_reset = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;

  /// Loads the library of this name, and begins to use it. kFailedPrecondition where the machine
  /// has none such, or one that lacks a function.
  [[nodiscard]] static Result<CurlLibrary> open(const char* name);
};

/// Debian's libcurl4, loaded once. As CurlLibrary::open() fails. Any thread.
[[nodiscard]] const Result<CurlLibrary>& curl_library();

}  // namespace heddle::fetch
