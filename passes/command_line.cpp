#include "command_line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <functional>
#include <set>

namespace felix {

const char *const felixHelp =
    R"(felix-iree-compile: iree-compile that builds models with the configurations tuned for them

FELIX OPTIONS:

  --felix-tuned=<DIR|FILE>         - Compile with the configurations and flags of a result
  --felix-require-landed[=<bool>]  - Fail if a configuration does not land (default true)
  --felix-print-landed[=<bool>]    - Say on stderr where each configuration landed
  --felix-extract-tasks=<FILE>     - Write the tasks and the configurations IREE chose

)";

namespace {

constexpr std::array<const char *, 14> phaseNames = {
    "start",
    "input",
    "abi",
    "preprocessing",
    "global-optimization",
    "dispatch-creation",
    "flow",
    "stream",
    "executable-sources",
    "executable-configurations",
    "executable-targets",
    "hal",
    "vm",
    "end",
};

/// Takes the value of an option. Returns what is wrong with it in LLVM's words, "" for nothing.
using Setter = std::function<std::string(const std::string &value)>;

Setter setText(std::string &target) {
  return [&target](const std::string &value) {
    target = value;
    return "";
  };
}

Setter setFile(std::optional<std::string> &target) {
  return [&target](const std::string &value) {
    target = value;
    return value.empty() ? "requires a value!" : "";
  };
}

Setter setBool(bool &target) {
  return [&target](const std::string &value) -> std::string {
    static const std::set<std::string> yes = {"", "true", "TRUE", "True", "1"};
    static const std::set<std::string> no = {"false", "FALSE", "False", "0"};
    target = yes.count(value);
    return target || no.count(value)
               ? ""
               : "'" + value + "' is invalid value for boolean argument! Try 0 or 1";
  };
}

Setter setInteger(int &target) {
  return [&target](const std::string &value) -> std::string {
    const char *end = value.data() + value.size();
    const auto [stop, problem] = std::from_chars(value.data(), end, target);
    return problem == std::errc() && stop == end
               ? ""
               : "Invalid argument '" + value + "', only integer is supported.";
  };
}

std::string unknownName(const std::string &value) {
  return "Cannot find option named '" + value + "'!";
}

Setter setPhase(Phase &target) {
  return [&target](const std::string &value) -> std::string {
    const auto name = std::find(phaseNames.begin(), phaseNames.end(), value);
    target = static_cast<Phase>(name - phaseNames.begin());
    return name == phaseNames.end() ? unknownName(value) : "";
  };
}

Setter setName(std::string &target, std::set<std::string> names) {
  return [&target, names = std::move(names)](const std::string &value) -> std::string {
    target = value;
    return names.count(value) ? "" : unknownName(value);
  };
}

struct Option {
  std::string name;
  bool needsValue;
  Setter set;
};

/// A bare word: the input, or the value of the flag before it, which only LLVM's parser knows.
struct Word {
  size_t position; // in CommandLine::rest
  bool mayBeValue;
};

class Parser {
public:
  explicit Parser(CommandLine &line)
      : line(line),
        options{
            {"felix-tuned", true, setFile(line.tuned)},
            {"felix-extract-tasks", true, setFile(line.extractTasks)},
            {"felix-require-landed", false, setBool(line.requireLanded)},
            {"felix-print-landed", false, setBool(line.printLanded)},
            {"o", true, setText(line.output)},
            {"output-format", true, setName(line.outputFormat, {"vm-bytecode", "vm-c", "vm-asm"})},
            {"compile-mode", true, setName(mode, {"std", "vm", "hal-executable", "precompile"})},
            {"compile-from", true, setPhase(line.compileFrom)},
            {"compile-to", true, setPhase(line.compileTo)},
            {"dump-compilation-phases-to", true, setText(line.dumpCompilationPhasesTo)},
            {"emit-mlir-bytecode", false, setBool(line.emitMLIRBytecode)},
            {"emit-mlir-bytecode-version", true, setInteger(line.emitMLIRBytecodeVersion)},
            {"verify", false, setBool(line.verify)},
            {"remarks-filter", true, setText(line.remarksFilter)},
            {"remarks-output-file", true, setText(line.remarksOutputFile)},
            {"split-input-file", false, setBool(splitsInput)},
        } {}

  std::optional<UsageProblem> parse(const Arguments &arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string &argument = arguments[i];
      const Token token(argument);
      const auto option = std::find_if(options.begin(), options.end(),
                                       [&](auto &known) { return known.name == token.name; });
      if (onlyWords || !token.isFlag) {
        if (auto problem = addWord(argument))
          return problem;
      } else if (option == options.end()) {
        if (token.isFelix())
          return UsageProblem{2, "unknown flag --" + token.name};
        line.rest.push_back(argument);
        mayBeValue = !token.value;
      } else {
        const bool takesNext = option->needsValue && !token.value;
        if (takesNext && i + 1 == arguments.size())
          return problemOf(*option, "requires a value!");
        const std::string what = option->set(takesNext ? arguments[++i] : token.value.value_or(""));
        if (!what.empty())
          return problemOf(*option, what);
        mayBeValue = false;
      }
    }
    takeInput();
    return findConflict();
  }

private:
  static UsageProblem problemOf(const Option &option, const std::string &what) {
    return {Token("--" + option.name).isFelix() ? 2 : 1,
            "for the " + std::string(option.name.size() == 1 ? "-" : "--") + option.name +
                " option: " + what};
  }

  std::optional<UsageProblem> addWord(const std::string &argument) {
    if (argument == "--" && !onlyWords) {
      onlyWords = true;
    } else {
      std::error_code ignored;
      if (argument[0] == '@' && std::filesystem::exists(argument.substr(1), ignored))
        return UsageProblem{2, argument + ": a response file can't be used with --felix-* flags"};
      words.push_back({line.rest.size(), mayBeValue});
    }
    line.rest.push_back(argument);
    mayBeValue = false;
    return std::nullopt;
  }

  void takeInput() {
    if (words.empty())
      return;
    auto word =
        std::find_if(words.begin(), words.end(), [](const Word &word) { return !word.mayBeValue; });
    if (word == words.end())
      --word;
    line.input = line.rest[word->position];
    line.rest.erase(line.rest.begin() + word->position);
  }

  std::optional<UsageProblem> findConflict() const {
    if (mode != "std")
      return UsageProblem{2, "--compile-mode=" + mode + " can't be used with --felix-* flags"};
    if (splitsInput)
      return UsageProblem{2, "--split-input-file can't be used with --felix-* flags"};
    if (line.compileFrom > Phase::ExecutableConfigurations)
      return UsageProblem{2, std::string("--compile-from=") + nameOf(line.compileFrom) +
                                 ": configurations have their effect before that phase"};
    return std::nullopt;
  }

  CommandLine &line;
  std::string mode = "std";
  bool splitsInput = false;
  std::vector<Option> options;
  std::vector<Word> words;
  bool onlyWords = false;
  bool mayBeValue = false; // the next word, of the flag before it
};

} // namespace

const char *nameOf(Phase phase) { return phaseNames[static_cast<size_t>(phase)]; }

std::optional<UsageProblem> parseCommandLine(const Arguments &arguments, CommandLine &line) {
  return Parser(line).parse(arguments);
}

} // namespace felix
