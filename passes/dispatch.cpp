#include "dispatch.h"

namespace felix {
namespace {

void append(MlirStringRef part, void *whole) {
  static_cast<std::string *>(whole)->append(part.data, part.length);
}

std::vector<MlirOperation> computeOps(MlirOperation function) {
  std::vector<MlirOperation> ops;
  walk(function, [&](MlirOperation op) {
    if (attributeOf(op, loweringConfigName).ptr)
      ops.push_back(op);
  });
  return ops;
}

} // namespace

std::string text(MlirAttribute attribute) {
  std::string whole;
  mlirAttributePrint(attribute, append, &whole);
  return whole;
}

std::string text(MlirType type) {
  std::string whole;
  mlirTypePrint(type, append, &whole);
  return whole;
}

std::string_view nameOf(MlirOperation op) {
  return view(mlirIdentifierStr(mlirOperationGetName(op)));
}

MlirAttribute attributeOf(MlirOperation op, std::string_view name) {
  return mlirOperationGetAttributeByName(op, stringRef(name));
}

std::vector<ConfiguredFunction> configuredFunctions(MlirOperation module) {
  std::vector<ConfiguredFunction> functions;
  forEachExecutable(module, [&](MlirOperation executable, const std::string &name) {
    MlirOperation function{nullptr};
    walk(executable, [&](MlirOperation op) {
      if (nameOf(op) == "func.func" && attributeOf(op, translationInfoName).ptr)
        function = op;
    });
    if (function.ptr)
      functions.push_back({name, function});
  });
  return functions;
}

ConfigurationAttributes readAttributes(MlirOperation function) {
  ConfigurationAttributes attributes;
  attributes.translationInfo = text(attributeOf(function, translationInfoName));
  for (MlirOperation op : computeOps(function))
    attributes.loweringConfigs.push_back(text(attributeOf(op, loweringConfigName)));
  return attributes;
}

std::string writeAttributes(MlirOperation function, const ConfigurationAttributes &attributes) {
  const std::vector<MlirOperation> ops = computeOps(function);
  if (ops.size() != attributes.loweringConfigs.size())
    return "the dispatch has " + std::to_string(ops.size()) +
           " compute ops, the configuration is for " +
           std::to_string(attributes.loweringConfigs.size());
  const MlirContext context = mlirOperationGetContext(function);
  std::vector<MlirAttribute> parsed;
  for (const std::string &config : attributes.loweringConfigs)
    parsed.push_back(mlirAttributeParseGet(context, stringRef(config)));
  parsed.push_back(mlirAttributeParseGet(context, stringRef(attributes.translationInfo)));
  for (MlirAttribute attribute : parsed)
    if (!attribute.ptr)
      return "IREE cannot read the configuration";
  for (size_t i = 0; i < ops.size(); ++i)
    mlirOperationSetAttributeByName(ops[i], stringRef(loweringConfigName), parsed[i]);
  mlirOperationSetAttributeByName(function, stringRef(translationInfoName), parsed.back());
  return "";
}

} // namespace felix
