// The configured dispatches of a module, and reading and writing their configurations.

#ifndef FELIX_PASSES_DISPATCH_H
#define FELIX_PASSES_DISPATCH_H

#include "mlir_c.h"

#include <string>
#include <string_view>
#include <vector>

namespace felix {

inline constexpr std::string_view loweringConfigName = "lowering_config";
inline constexpr std::string_view translationInfoName = "translation_info";

/// A configuration as IREE spells it, for any backend: the attribute texts of the function and of
/// its compute ops in program order.
struct ConfigurationAttributes {
  std::string translationInfo;
  std::vector<std::string> loweringConfigs;

  bool operator==(const ConfigurationAttributes &other) const {
    return translationInfo == other.translationInfo && loweringConfigs == other.loweringConfigs;
  }
};

/// A dispatch function at the phase executable-configurations and the name of its hal.executable.
struct ConfiguredFunction {
  std::string executable;
  MlirOperation function;
};

inline MlirStringRef stringRef(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view view(MlirStringRef text) { return {text.data, text.length}; }

std::string text(MlirAttribute attribute);
std::string text(MlirType type);
std::string_view nameOf(MlirOperation op);

/// The attribute, or one whose `ptr` is null.
MlirAttribute attributeOf(MlirOperation op, std::string_view name);

/// Calls `visit(op)` for every op of a block.
template <typename Visit> void forEachOp(MlirBlock block, Visit visit) {
  for (MlirOperation op = mlirBlockGetFirstOperation(block); op.ptr;
       op = mlirOperationGetNextInBlock(op))
    visit(op);
}

/// Calls `visit(op)` for `root` and every op nested in it, in program order.
template <typename Visit> void walk(MlirOperation root, Visit visit) {
  mlirOperationWalk(
      root,
      [](MlirOperation op, void *user) {
        (*static_cast<Visit *>(user))(op);
        return MlirWalkResultAdvance;
      },
      &visit, MlirWalkPreOrder);
}

/// Calls `visit(executable, name)` for every hal.executable of a module.
template <typename Visit> void forEachExecutable(MlirOperation module, Visit visit) {
  forEachOp(mlirRegionGetFirstBlock(mlirOperationGetRegion(module, 0)), [&](MlirOperation op) {
    if (nameOf(op) == "hal.executable")
      visit(op, std::string(view(mlirStringAttrGetValue(attributeOf(op, "sym_name")))));
  });
}

/// The configured dispatch functions of a module, in order.
std::vector<ConfiguredFunction> configuredFunctions(MlirOperation module);

/// The configuration a dispatch function carries, whatever kind it is.
ConfigurationAttributes readAttributes(MlirOperation function);

/// Sets a configuration on every compute op of a dispatch function, in place. Returns why that
/// cannot be, and then changes nothing; "" if it is done.
std::string writeAttributes(MlirOperation function, const ConfigurationAttributes &attributes);

} // namespace felix

#endif // FELIX_PASSES_DISPATCH_H
