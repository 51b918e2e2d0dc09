#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heddle::cli {

/// Of `heddle certs init`, `issue` and `show`. Texts are as typed, and checked when it runs.
struct CertsOptions {
  std::string folder{};  ///< Of the authority.
  std::string cluster{};
  std::string role{};
  std::string name{};
  std::vector<std::string> addresses{};
  int authority_days = 3650;
  int days = 365;
  std::string file{};  ///< What is shown.
};

/// Declares the verbs; where one is chosen, `chosen` becomes what runs it.
void add_certs_commands(CLI::App& app, CertsOptions& options, std::function<int()>& chosen);

/// Makes a cluster's certificate authority.
int certs_init(const CertsOptions& options);
/// Issues the certificate of one process.
int certs_issue(const CertsOptions& options);
/// Prints what a certificate says; 1 where it is not good now.
int certs_show(const CertsOptions& options);

}  // namespace heddle::cli
