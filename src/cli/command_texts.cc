#include "cli/command_texts.h"

#include <map>
#include <string_view>

#include <CLI/CLI.hpp>

namespace heddle::cli {

namespace {

void add_verb(const CLI::App& app, const std::string& name, std::vector<CommandVerb>& verbs) {
  CommandVerb verb{.name = name, .about = app.get_description()};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      verb.arguments.push_back(option->get_name(/*positional=*/true));
      continue;
    }
    CommandOption told{.about = option->get_description(),
                       .takes_value = option->get_expected_max() > 0};
    for (const std::string& letter : option->get_snames()) {
      told.names.push_back("-" + letter);
    }
    for (const std::string& word : option->get_lnames()) {
      told.names.push_back("--" + word);
    }
    verb.options.push_back(std::move(told));
  }
  verbs.push_back(std::move(verb));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) {  // Those that nobody types have none.
      add_verb(*sub, name.empty() ? sub->get_name() : name + " " + sub->get_name(), verbs);
    }
  }
}

/// A word between single quotes, as shells read it.
std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

/// A text in roff: backslashes, dashes and dots at the beginning of a line mean something there.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

/// By verb, the words that may follow it: verbs within it, and options.
std::map<std::string, std::string> words_after(const std::vector<CommandVerb>& verbs) {
  std::map<std::string, std::string> words;
  for (const CommandVerb& verb : verbs) {
    std::string& own = words[verb.name];
    for (const CommandOption& option : verb.options) {
      for (const std::string& name : option.names) {
        own += (own.empty() ? "" : " ") + name;
      }
    }
    if (verb.name.empty()) {
      continue;
    }
    const std::size_t blank = verb.name.rfind(' ');
    std::string& outer = words[blank == std::string::npos ? "" : verb.name.substr(0, blank)];
    const std::string last = blank == std::string::npos ? verb.name : verb.name.substr(blank + 1);
    outer += (outer.empty() ? "" : " ") + last;
  }
  return words;
}

bool takes_model(const CommandVerb& verb) {
  return !verb.arguments.empty() && verb.arguments.front() == "model";
}

}  // namespace

std::vector<CommandVerb> command_table(const CLI::App& app) {
  std::vector<CommandVerb> verbs;
  add_verb(app, "", verbs);
  return verbs;
}

std::string bash_completion(const std::vector<CommandVerb>& verbs) {
  std::string text =
      "# Completion of heddle for bash, made by `heddle completions bash`.\n"
      "_heddle() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} verb='' each words=''\n"
      "  for each in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case $each in -*) continue ;; esac\n"
      "    case \"${verb:+$verb }$each\" in\n      ";
  std::string known;
  for (const CommandVerb& verb : verbs) {
    if (!verb.name.empty()) {
      known += (known.empty() ? "" : "|") + shell_word(verb.name);
    }
  }
  text += known + ") verb=${verb:+$verb }$each ;;\n    esac\n  done\n  case $verb in\n";
  for (const auto& [verb, words] : words_after(verbs)) {
    text += "    " + shell_word(verb) + ") words=" + shell_word(words) + " ;;\n";
  }
  std::string models;
  for (const CommandVerb& verb : verbs) {
    if (takes_model(verb)) {
      models += (models.empty() ? "" : "|") + shell_word(verb.name);
    }
  }
  text += "  esac\n  case $verb in\n    " + models +
          ")\n      words=\"$words $(heddle list 2>/dev/null | awk 'NR > 1 {print $1}')\" ;;\n"
          "  esac\n"
          "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\ncomplete -o default -F _heddle heddle\n";
  return text;
}

std::string zsh_completion(const std::vector<CommandVerb>& verbs) {
  // zsh reads completions of bash, once it is asked to.
  return "#compdef heddle\n# Completion of heddle for zsh, made by `heddle completions zsh`.\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_completion(verbs);
}

std::string fish_completion(const std::vector<CommandVerb>& verbs) {
  std::string text = "# Completion of heddle for fish, made by `heddle completions fish`.\n";
  for (const CommandVerb& verb : verbs) {
    const std::size_t blank = verb.name.rfind(' ');
    std::string seen = "__fish_use_subcommand";
    if (blank != std::string::npos) {
      seen = "__fish_seen_subcommand_from " + verb.name.substr(0, blank);
    }
    if (!verb.name.empty()) {
      const std::string last = blank == std::string::npos ? verb.name : verb.name.substr(blank + 1);
      text += "complete -c heddle -f -n " + shell_word(seen) + " -a " + shell_word(last) + " -d " +
              shell_word(verb.about) + "\n";
    }
    const std::string own =
        verb.name.empty()
            ? "__fish_use_subcommand"
            : "__fish_seen_subcommand_from " +
                  (blank == std::string::npos ? verb.name : verb.name.substr(blank + 1));
    for (const CommandOption& option : verb.options) {
      text += "complete -c heddle -n " + shell_word(own);
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      text +=
          std::string(option.takes_value ? " -r" : "") + " -d " + shell_word(option.about) + "\n";
    }
    if (takes_model(verb)) {
      text += "complete -c heddle -f -n " + shell_word(own) +
              " -a \"(heddle list 2>/dev/null | awk 'NR > 1 {print \\$1}')\"\n";
    }
  }
  return text;
}

std::string manual_page(const std::vector<CommandVerb>& verbs, const std::string& version) {
  std::string text = ".TH HEDDLE 1 \"\" \"heddle " + roff(version) + "\"\n";
  for (const CommandVerb& verb : verbs) {
    if (verb.name.empty()) {
      text += ".SH NAME\nheddle \\- " + roff(verb.about.substr(verb.about.find(": ") + 2)) +
              "\n.SH SYNOPSIS\n.B heddle\n.I VERB\n[OPTIONS]\n.SH VERBS\n";
      continue;
    }
    text += ".SS heddle " + roff(verb.name);
    for (const std::string& argument : verb.arguments) {
      text += " " + roff(argument);
    }
    text += "\n" + roff(verb.about) + ".\n";
    for (const CommandOption& option : verb.options) {
      std::string names;
      for (const std::string& name : option.names) {
        names += (names.empty() ? "" : ", ") + roff(name);
      }
      text += ".TP\n.B " + names + (option.takes_value ? " VALUE" : "") + "\n" +
              roff(option.about) + "\n";
    }
  }
  return text +
         ".SH ENVIRONMENT\n.TP\n.B HEDDLE_HOST\nWhere verbs find the server.\n"
         ".TP\n.B HEDDLE_API_KEY\nThe key that they show.\n"
         ".SH SEE ALSO\nThe guide, in /usr/share/doc/heddle/docs.\n";
}

}  // namespace heddle::cli
