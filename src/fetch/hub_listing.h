#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fetch/object.h"

/// What Hugging Face's hub says about a repository, as JSON.
namespace heddle::fetch {

/// Reads the commit of `/api/models/{repo}/revision/{revision}`. kCorrupt, naming `where`, unless
/// there is one of hexadecimal digits.
[[nodiscard]] Result<std::string> parse_hub_revision(std::string_view json, std::string_view where);

/// Reads a page of `/api/models/{repo}/tree/{commit}?recursive=1`: its files, without their URLs.
/// kCorrupt, naming `where`, where it is no list of files, or one leads out of the folder.
[[nodiscard]] Result<std::vector<Object>> parse_hub_tree(std::string_view json,
                                                         std::string_view where);

/// The URL of the next page in a header `Link`; empty where there is none.
[[nodiscard]] std::string next_page(std::string_view link);

}  // namespace heddle::fetch
