#include "extract_tasks.h"

#include "canonical.h"
#include "tuned.h"

#include <fstream>

namespace felix {
namespace {

struct Group {
  std::string form;
  std::vector<ConfiguredFunction> members;
};

std::vector<Group> groupsOf(MlirOperation module) {
  std::vector<Group> groups;
  for (const ConfiguredFunction &configured : configuredFunctions(module)) {
    std::string form = canonicalForm(configured.function);
    Group *group = nullptr;
    for (Group &known : groups)
      if (known.form == form)
        group = &known;
    if (!group)
      group = &groups.emplace_back(Group{std::move(form), {}});
    group->members.push_back(configured);
  }
  return groups;
}

std::string list(const std::vector<std::string> &items) {
  std::string whole = "[";
  for (size_t i = 0; i < items.size(); ++i)
    whole += (i ? ", " : "") + items[i];
  return whole + "]";
}

std::string taskText(const Group &group) {
  const MlirOperation first = group.members.front().function;
  const MlirContext context = mlirOperationGetContext(first);
  const auto quoted = [&](const std::string &value) {
    return text(mlirStringAttrGet(context, stringRef(value)));
  };
  std::vector<std::string> executables;
  for (const ConfiguredFunction &member : group.members)
    executables.push_back(quoted(member.executable));
  const ConfigurationAttributes attributes = readAttributes(first);
  return "  module @" + executables.front() + " attributes {" +
         "\n    felix.executables = " + list(executables) + "," +
         "\n    felix.form = " + quoted(group.form) + "," +
         "\n    felix.lowering_configs = " + list(attributes.loweringConfigs) + "," +
         "\n    felix.translation_info = " + attributes.translationInfo + "} {\n  }\n";
}

} // namespace

std::string extractTasks(MlirOperation module) {
  std::string tasks;
  for (const Group &group : groupsOf(module))
    tasks += taskText(group);
  return "module attributes {\n  felix.format = " + std::to_string(tunedFormat) + " : i64} {\n" +
         tasks + "}\n";
}

std::string writeTasks(MlirOperation module, const std::string &path) {
  std::ofstream file(path, std::ios::binary);
  file << extractTasks(module) << std::flush;
  return file ? "" : path + " cannot be written";
}

} // namespace felix
