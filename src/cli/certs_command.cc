#include "cli/certs_command.h"

#include <chrono>
#include <cstdio>

#include "cli/terminal.h"
#include "net/authority.h"
#include "net/certificate.h"

#include <CLI/CLI.hpp>

namespace heddle::cli {

namespace {

constexpr int kDaysMost = 36500;

std::chrono::sys_seconds system_now() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

net::Validity for_days(int days) {
  return {.now = system_now(), .days = std::chrono::days(days)};
}

}  // namespace

void add_certs_commands(CLI::App& app, CertsOptions& options, std::function<int()>& chosen) {
  CLI::App* certs = app.add_subcommand("certs", "Make the certificates of a cluster");
  certs->require_subcommand(1);

  CLI::App* verb = certs->add_subcommand("init", "Make an authority: ca.crt and ca.key");
  verb->add_option("folder", options.folder, "Where; made if there is none")->required();
  verb->add_option("--cluster", options.cluster, "Name of the cluster")->required();
  verb->add_option("--days", options.authority_days, "How long it is good")
      ->check(CLI::Range(1, kDaysMost))
      ->capture_default_str();
  verb->callback([&] { chosen = [&] { return certs_init(options); }; });

  verb = certs->add_subcommand("issue", "Issue a certificate: NAME.crt and NAME.key");
  verb->add_option("folder", options.folder, "Of the authority")->required();
  verb->add_option("--role", options.role, "manager, gateway or agent")->required();
  verb->add_option("--name", options.name, "Of the process; that of its host, say")->required();
  verb->add_option("--address", options.addresses, "Of the host, for other programs: name or IP");
  verb->add_option("--days", options.days, "How long it is good")
      ->check(CLI::Range(1, kDaysMost))
      ->capture_default_str();
  verb->callback([&] { chosen = [&] { return certs_issue(options); }; });

  verb = certs->add_subcommand("show", "Tell whose a certificate is, and until when it is good");
  verb->add_option("file", options.file, "PEM file")->required();
  verb->callback([&] { chosen = [&] { return certs_show(options); }; });
}

int certs_init(const CertsOptions& options) {
  const Result<net::IssuedFiles> files =
      net::make_authority(options.folder, options.cluster, for_days(options.authority_days));
  if (!files) {
    return fail(files.error());
  }
  std::printf(
      "wrote %s, which every process of the cluster needs, and %s, which none does: who has "
      "it can join\n",
      files->certificate.c_str(),
      files->key.c_str());
  return 0;
}

int certs_issue(const CertsOptions& options) {
  const Result<net::Role> role = net::parse_role(options.role);
  if (!role) {
    return fail({.code = role.error().code,
                 .message = "--role \"" + options.role + "\": " + role.error().message});
  }
  const Result<net::IssuedFiles> files =
      net::issue_certificate(options.folder,
                             {.role = *role, .name = options.name, .addresses = options.addresses},
                             for_days(options.days));
  if (!files) {
    return fail(files.error());
  }
  std::printf("wrote %s and %s\n", files->certificate.c_str(), files->key.c_str());
  return 0;
}

int certs_show(const CertsOptions& options) {
  const Result<net::CertificateFacts> facts = net::read_certificate(options.file);
  if (!facts) {
    return fail(facts.error());
  }
  std::vector<std::vector<std::string>> rows{{"cluster", facts->cluster}};
  if (facts->identity) {
    rows.push_back({"role", std::string(net::name(facts->identity->role))});
    rows.push_back({"name", facts->identity->name});
  } else {
    rows.push_back({"role", "authority"});
  }
  for (const std::string& address : facts->addresses) {
    rows.push_back({"address", printable(address)});
  }
  rows.push_back({"from", net::time_text(facts->from)});
  rows.push_back({"until", net::time_text(facts->until)});
  std::fputs(format_table(rows).c_str(), stdout);
  const Result<void> good = net::check_time(*facts, system_now());
  if (!good) {
    return fail({.code = good.error().code,
                 .message = "\"" + options.file + "\": " + good.error().message});
  }
  return 0;
}

}  // namespace heddle::cli
