#include "canonical.h"

#include "dispatch.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace felix {
namespace {

// Where in which buffer an operand lies depends on the model around the dispatch.
constexpr std::string_view bindingName = "hal.interface.binding.subspan";

bool isStructure(std::string_view attributeName) {
  return attributeName != loweringConfigName && attributeName != "root_op" &&
         attributeName != "sym_name";
}

bool startsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

std::string_view beforeFirst(std::string_view text, std::string_view separator) {
  return text.substr(0, text.find(separator));
}

std::string_view afterLast(std::string_view text, std::string_view separator) {
  const size_t position = text.rfind(separator);
  return position == std::string_view::npos ? text : text.substr(position + separator.size());
}

std::string join(const std::vector<std::string> &parts, std::string_view separator) {
  std::string whole;
  for (size_t i = 0; i < parts.size(); ++i)
    whole.append(i ? separator : "").append(parts[i]);
  return whole;
}

std::vector<std::string_view> linesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  lines.push_back(text);
  return lines;
}

MlirAttribute targetOf(MlirOperation op) {
  while (nameOf(op) != "hal.executable.variant")
    op = mlirOperationGetParentOperation(op);
  return attributeOf(op, "target");
}

/// A type without where in a buffer it lies: a binding by what it holds, a memref by shape and
/// element type.
std::string structureOf(MlirType type) {
  const std::string whole = text(type);
  if (startsWith(whole, "!iree_tensor_ext.dispatch.tensor<"))
    return "buffer";
  if (!startsWith(whole, "memref<"))
    return whole;
  const std::string_view shape = beforeFirst(whole, ",");
  return std::string(shape.substr(0, shape.find_last_not_of('>') + 1)) + ">";
}

std::string structureOf(MlirAttribute attribute) {
  const std::string whole = text(attribute);
  if (startsWith(whole, "@"))
    return "@";
  if (startsWith(whole, "dense"))
    return "dense : " + std::string(afterLast(whole, " : "));
  return whole;
}

std::vector<std::string> attributesOf(MlirOperation op) {
  std::vector<std::string> entries;
  for (intptr_t i = 0, end = mlirOperationGetNumAttributes(op); i < end; ++i) {
    const MlirNamedAttribute named = mlirOperationGetAttribute(op, i);
    const std::string_view name = view(mlirIdentifierStr(named.name));
    if (isStructure(name))
      entries.push_back(std::string(name) + " = " + structureOf(named.attribute));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool isUsed(MlirOperation op) {
  for (intptr_t i = 0, end = mlirOperationGetNumResults(op); i < end; ++i)
    if (!mlirOpOperandIsNull(mlirValueGetFirstUse(mlirOperationGetResult(op, i))))
      return true;
  return false;
}

class Form {
public:
  explicit Form(MlirOperation function) {
    lines.push_back("target {" + text(targetOf(function)) + "}");
    addRegion(mlirOperationGetRegion(function, 0));
  }

  std::string str() const { return join(lines, "\n"); }

private:
  void addRegion(MlirRegion region) {
    for (MlirBlock block = mlirRegionGetFirstBlock(region); block.ptr;
         block = mlirBlockGetNextInRegion(block)) {
      addArguments(block);
      forEachOp(block, [&](MlirOperation op) {
        if (!isUsed(op))
          addWithMakers(op);
      });
    }
  }

  void addArguments(MlirBlock block) {
    std::vector<std::string> types;
    for (intptr_t i = 0, end = mlirBlockGetNumArguments(block); i < end; ++i) {
      const MlirValue argument = mlirBlockGetArgument(block, i);
      names[argument.ptr] = "%b" + std::to_string(blocks) + "." + std::to_string(i);
      types.push_back(structureOf(mlirValueGetType(argument)));
    }
    ++blocks;
    lines.push_back("^(" + join(types, ", ") + ")");
  }

  /// Adds an op behind all that its operands come from, depth first.
  void addWithMakers(MlirOperation wanted) {
    std::vector<MlirOperation> open{wanted};
    while (!open.empty()) {
      const MlirOperation op = open.back();
      const MlirOperation missing = missingMaker(op);
      if (missing.ptr) {
        open.push_back(missing);
        continue;
      }
      open.pop_back();
      add(op);
    }
  }

  MlirOperation missingMaker(MlirOperation op) const {
    if (nameOf(op) == bindingName)
      return {nullptr};
    for (intptr_t i = 0, end = mlirOperationGetNumOperands(op); i < end; ++i) {
      const MlirValue operand = mlirOperationGetOperand(op, i);
      if (mlirValueIsABlockArgument(operand))
        continue;
      const MlirOperation maker = mlirOpResultGetOwner(operand);
      if (!done.count(maker.ptr))
        return maker;
    }
    return {nullptr};
  }

  void add(MlirOperation op) {
    done.insert(op.ptr);
    const bool isBinding = nameOf(op) == bindingName;
    std::vector<std::string> operands;
    if (!isBinding)
      for (intptr_t i = 0, end = mlirOperationGetNumOperands(op); i < end; ++i)
        operands.push_back(names[mlirOperationGetOperand(op, i).ptr]);
    const intptr_t resultCount = mlirOperationGetNumResults(op);
    std::vector<std::string> types;
    for (intptr_t i = 0; i < resultCount; ++i)
      types.push_back(structureOf(mlirValueGetType(mlirOperationGetResult(op, i))));
    const std::string line = std::string(nameOf(op)) + "(" + join(operands, ", ") + ") {" +
                             (isBinding ? "" : join(attributesOf(op), ", ")) +
                             "} : " + join(types, ", ");
    // Whether equal ops are merged depends on which passes ran: those without regions count once.
    const auto twin = numbers.find(line);
    const unsigned number = twin == numbers.end() ? ops++ : twin->second;
    const std::string name = "%" + std::to_string(number);
    for (intptr_t i = 0; i < resultCount; ++i)
      names[mlirOperationGetResult(op, i).ptr] =
          resultCount == 1 ? name : name + "#" + std::to_string(i);
    if (twin != numbers.end())
      return;
    lines.push_back(name + " = " + line);
    const intptr_t regionCount = mlirOperationGetNumRegions(op);
    if (!isBinding && resultCount && !regionCount)
      numbers.emplace(line, number);
    for (intptr_t i = 0; i < regionCount; ++i) {
      lines.push_back("{");
      addRegion(mlirOperationGetRegion(op, i));
      lines.push_back("}");
    }
  }

  std::vector<std::string> lines;
  std::unordered_map<void *, std::string> names;
  std::unordered_set<void *> done;
  std::unordered_map<std::string, unsigned> numbers;
  unsigned ops = 0;
  unsigned blocks = 0;
};

/// What of a line says which op it is and what it is connected to.
std::string_view skeleton(std::string_view line) {
  return startsWith(line, "^") ? line.substr(0, 1) : beforeFirst(line, " {");
}

} // namespace

std::string canonicalForm(MlirOperation function) { return Form(function).str(); }

std::optional<std::string> difference(std::string_view form, std::string_view other) {
  const std::vector<std::string_view> lines = linesOf(form), others = linesOf(other);
  if (!std::equal(lines.begin(), lines.end(), others.begin(), others.end(),
                  [](auto a, auto b) { return skeleton(a) == skeleton(b); }))
    return std::nullopt;
  const auto [line, theirs] =
      std::mismatch(lines.begin(), lines.end(), others.begin(), others.end());
  if (line == lines.end())
    return "";
  if (startsWith(*line, "target "))
    return "it is for another executable target";
  const std::string name(beforeFirst(afterLast(skeleton(*line), " = "), "("));
  const std::string types(afterLast(*line, "} : ")), theirTypes(afterLast(*theirs, "} : "));
  if (types != theirTypes)
    return name + " has type " + types + " here, " + theirTypes + " there";
  return name + " has other attributes";
}

} // namespace felix
