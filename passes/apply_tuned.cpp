#include "apply_tuned.h"

#include "canonical.h"

#include <algorithm>
#include <map>

namespace felix {
namespace {

constexpr const char *landedIn = "landed in";
constexpr const char *notLandedIn = "did not land in";
constexpr const char *notFound = "has no dispatch here";
constexpr const char *rewritten = "was rewritten";
constexpr const char *notRewritten = "is not here: its rewrite was not applied";

struct Dispatch {
  ConfiguredFunction configured;
  std::string form;
  std::string owner; // the first task that has this form
};

std::string write(Dispatch &dispatch, const TunedTask &task) {
  if (dispatch.owner.empty())
    dispatch.owner = task.id;
  if (dispatch.owner != task.id)
    return "task " + dispatch.owner + " has the same form";
  const MlirOperation function = dispatch.configured.function;
  const std::string why = writeAttributes(function, task.attributes);
  if (!why.empty())
    return why;
  return readAttributes(function) == task.attributes ? "" : "the attributes read back differently";
}

std::string nearest(const TunedTask &task, const std::vector<Dispatch> &dispatches) {
  for (const Dispatch &dispatch : dispatches) {
    const std::optional<std::string> what = difference(dispatch.form, task.form);
    if (what && !what->empty())
      return dispatch.configured.executable + " is like it, but " + *what;
  }
  return "";
}

std::optional<int64_t> constant(MlirValue value) {
  if (mlirValueIsABlockArgument(value))
    return std::nullopt;
  const MlirOperation maker = mlirOpResultGetOwner(value);
  if (nameOf(maker) != "arith.constant")
    return std::nullopt;
  return mlirIntegerAttrGetValueInt(attributeOf(maker, "value"));
}

/// How many workgroups an export launches, where that is a constant.
std::optional<int64_t> workgroupCount(MlirOperation exported) {
  MlirOperation returned{nullptr};
  walk(exported, [&](MlirOperation op) {
    if (!returned.ptr && nameOf(op) == "hal.return")
      returned = op;
  });
  if (!returned.ptr)
    return std::nullopt;
  int64_t count = 1;
  for (intptr_t i = 0, end = mlirOperationGetNumOperands(returned); i < end; ++i) {
    const std::optional<int64_t> size = constant(mlirOperationGetOperand(returned, i));
    if (!size)
      return std::nullopt;
    count *= *size;
  }
  return count;
}

std::map<std::string, int64_t> workgroupCounts(MlirOperation module) {
  std::map<std::string, int64_t> counts;
  forEachExecutable(module, [&](MlirOperation executable, const std::string &name) {
    walk(executable, [&](MlirOperation op) {
      if (nameOf(op) != "hal.executable.export")
        return;
      if (const std::optional<int64_t> count = workgroupCount(op))
        counts[name] = *count;
    });
  });
  return counts;
}

} // namespace

bool Landing::hasLanded() const {
  return isFound() && std::all_of(executables.begin(), executables.end(),
                                  [](const auto &entry) { return entry.second.empty(); });
}

std::string Landing::problem() const {
  if (!isFound())
    return near.empty() ? notFound : std::string(notFound) + " (" + near + ")";
  std::string problems;
  for (const auto &[name, why] : executables)
    if (!why.empty())
      problems +=
          (problems.empty() ? "" : "; ") + std::string(notLandedIn) + " " + name + ": " + why;
  return problems;
}

std::vector<std::string> Landing::lines() const {
  if (!isFound())
    return {message()};
  std::vector<std::string> lines;
  for (const auto &[name, why] : executables)
    lines.push_back(messagePrefix + ("task " + task + " ") +
                    (why.empty() ? landedIn : notLandedIn) + " " + name +
                    (why.empty() ? "" : ": " + why));
  return lines;
}

std::string RewriteLanding::message() const {
  return messagePrefix + ("op " + root + " ") + (hasLanded ? rewritten : notRewritten);
}

std::vector<RewriteLanding> checkRewrites(MlirOperation module, const Rewrites &rewrites) {
  const std::set<std::string> missing = missingRoots(module, rewrites.roots);
  std::vector<RewriteLanding> landings;
  for (const std::string &root : rewrites.roots)
    landings.push_back({root, missing.count(root) == 0});
  return landings;
}

std::vector<Landing> applyTuned(MlirOperation module, const Tuned &tuned) {
  std::vector<Dispatch> dispatches;
  for (const ConfiguredFunction &configured : configuredFunctions(module))
    dispatches.push_back({configured, canonicalForm(configured.function), ""});
  std::vector<Landing> landings;
  for (const TunedTask &task : tuned.tasks) {
    Landing landing{task.id, {}, ""};
    for (Dispatch &dispatch : dispatches)
      if (dispatch.form == task.form)
        landing.executables.emplace_back(dispatch.configured.executable, write(dispatch, task));
    if (!landing.isFound())
      landing.near = nearest(task, dispatches);
    landings.push_back(std::move(landing));
  }
  return landings;
}

void checkWorkgroups(MlirOperation module, const Tuned &tuned, std::vector<Landing> &landings) {
  const std::map<std::string, int64_t> counts = workgroupCounts(module);
  for (size_t i = 0; i < landings.size(); ++i) {
    const std::optional<int64_t> wanted = tuned.tasks[i].workgroups;
    if (!wanted)
      continue;
    for (auto &[name, why] : landings[i].executables) {
      const auto count = counts.find(name);
      const bool isKnown = count != counts.end();
      if (why.empty() && !(isKnown && count->second == *wanted))
        why = "its code launches " +
              (isKnown ? std::to_string(count->second) : std::string("an unknown number of")) +
              " workgroups, not " + std::to_string(*wanted);
    }
  }
}

} // namespace felix
