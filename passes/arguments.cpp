#include "arguments.h"

#include <algorithm>
#include <set>

namespace felix {
namespace {

using Names = std::set<std::string>;

const Names helpNames = {"h", "help", "help-hidden", "help-list", "help-list-hidden"};
const Names informationNames = {"version", "iree-hal-list-target-backends", "iree-list-plugins"};
const Names felixNamesWithValue = {"felix-tuned", "felix-extract-tasks"};

bool isAnyOf(const Arguments &arguments, const Names &names) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string &argument) {
    return names.count(Token(argument).name) != 0;
  });
}

bool selectsTarget(const std::string &argument) {
  const std::string name = Token(argument).name;
  return name.rfind("iree-hal-target", 0) == 0 || name.rfind("iree-hal-local-target", 0) == 0;
}

} // namespace

Token::Token(const std::string &argument)
    : isFlag(argument.size() > 1 && argument[0] == '-' && argument != "--") {
  if (!isFlag)
    return;
  const size_t start = argument[1] == '-' ? 2 : 1, equals = argument.find('=', start);
  name = argument.substr(start, equals == std::string::npos ? equals : equals - start);
  if (equals != std::string::npos)
    value = argument.substr(equals + 1);
}

bool hasFelixFlag(const Arguments &arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string &argument) { return Token(argument).isFelix(); });
}

bool hasSpecFlag(const Arguments &arguments) { return isAnyOf(arguments, {specFlagName}); }

bool asksForHelp(const Arguments &arguments) { return isAnyOf(arguments, helpNames); }

bool asksForInformation(const Arguments &arguments) {
  return asksForHelp(arguments) || isAnyOf(arguments, informationNames);
}

Arguments withoutFelixFlags(const Arguments &arguments) {
  Arguments kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Token token(arguments[i]);
    if (!token.isFelix())
      kept.push_back(arguments[i]);
    else if (felixNamesWithValue.count(token.name) && !token.value)
      ++i;
  }
  return kept;
}

Arguments withFlags(const Tuned *tuned, const Arguments &arguments) {
  const bool choosesTarget = std::any_of(arguments.begin(), arguments.end(), selectsTarget);
  Arguments flags{"--iree-codegen-add-tuner-attributes"};
  if (tuned) {
    flags.insert(flags.end(), tuned->targetFlags.begin(), tuned->targetFlags.end());
    flags.insert(flags.end(), tuned->modelFlags.begin(), tuned->modelFlags.end());
    if (tuned->rewrites)
      flags.push_back("--" + std::string(specFlagName) + "=" + tuned->rewrites->script);
  }
  Arguments all;
  for (const std::string &flag : flags)
    if (!isAnyOf(arguments, {Token(flag).name}) && !(choosesTarget && selectsTarget(flag)))
      all.push_back(flag);
  // In front: behind a flag that lacks its value, or behind `--`, they would not be flags.
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

} // namespace felix
