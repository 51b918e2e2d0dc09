#include "cli/command_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace heddle::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class CommandTexts : public testing::Test {
 protected:
  CommandTexts() {
    CLI::App* run = app_.add_subcommand("run", "Chat with a model's best");
    run->add_option("model", model_, "Its name")->required();
    run->add_option("-s,--system", system_, "What is said first");
    run->add_flag("--json", json_, "Print JSON");
    CLI::App* config = app_.add_subcommand("config", "Check it");
    config->add_subcommand("check", "Tell what is wrong");
    app_.add_subcommand("worker", "Hidden")->group("");
    verbs_ = command_table(app_);
  }

  CLI::App app_{"heddle: many models", "heddle"};
  std::string model_{};
  std::string system_{};
  bool json_ = false;
  std::vector<CommandVerb> verbs_{};
};

TEST_F(CommandTexts, TheTableIsTheParsersOwn) {
  ASSERT_EQ(verbs_.size(), 4U) << "the program, two verbs and one within; none that is hidden";
  EXPECT_EQ(verbs_[1].name, "run");
  EXPECT_EQ(verbs_[1].arguments, std::vector<std::string>{"model"});
  ASSERT_EQ(verbs_[1].options.size(), 3U) << "with --help";
  EXPECT_EQ(verbs_[1].options[1].names, (std::vector<std::string>{"-s", "--system"}));
  EXPECT_TRUE(verbs_[1].options[1].takes_value);
  EXPECT_FALSE(verbs_[1].options[2].takes_value);
  EXPECT_EQ(verbs_[3].name, "config check");
}

TEST_F(CommandTexts, ShellsGetVerbsAndOptions) {
  const std::string bash = bash_completion(verbs_);
  EXPECT_THAT(bash, HasSubstr("'run') words='-h --help -s --system --json'"));
  EXPECT_THAT(bash, HasSubstr("'config') words='-h --help check'"));
  EXPECT_THAT(bash, Not(HasSubstr("worker")));
  EXPECT_THAT(zsh_completion(verbs_), testing::StartsWith("#compdef heddle\n"));
  const std::string fish = fish_completion(verbs_);
  EXPECT_THAT(fish, HasSubstr("-a 'run' -d 'Chat with a model'\\''s best'"));
  EXPECT_THAT(fish, HasSubstr("'__fish_seen_subcommand_from run' -s s -l system -r"));
}

TEST_F(CommandTexts, TheManualHasEachVerb) {
  const std::string page = manual_page(verbs_, "1.0");
  EXPECT_THAT(page, HasSubstr(".SH NAME\nheddle \\- many models\n"));
  EXPECT_THAT(page, HasSubstr(".SS heddle config check\nTell what is wrong.\n"));
  EXPECT_THAT(page, HasSubstr(".B \\-s, \\-\\-system VALUE\n"));
}

}  // namespace
}  // namespace heddle::cli
