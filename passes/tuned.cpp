#include "tuned.h"

#include <filesystem>
#include <fstream>
#include <iterator>

namespace felix {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view fileName = "configurations.mlir";
constexpr std::string_view rewritesFileName = "rewrites.mlir";

/// A context that knows IREE's dialects and keeps its diagnostics to itself.
class QuietContext {
public:
  QuietContext() {
    const MlirDialectRegistry registry = mlirDialectRegistryCreate();
    ireeCompilerRegisterDialects(registry);
    context = mlirContextCreateWithRegistry(registry, /*threadingEnabled=*/false);
    mlirDialectRegistryDestroy(registry);
    mlirContextAttachDiagnosticHandler(
        context, [](MlirDiagnostic, void *) { return MlirLogicalResult{1}; }, nullptr, nullptr);
  }
  ~QuietContext() {
    for (MlirModule module : modules)
      mlirModuleDestroy(module);
    mlirContextDestroy(context);
  }
  QuietContext(const QuietContext &) = delete;
  QuietContext &operator=(const QuietContext &) = delete;

  /// Parses a file into a module that this context holds; an operation whose `ptr` is null if that
  /// fails.
  MlirOperation parse(const fs::path &file) {
    std::ifstream stream(file, std::ios::binary);
    const std::string source{std::istreambuf_iterator<char>(stream), {}};
    const MlirModule module = mlirModuleCreateParse(context, stringRef(source));
    if (!module.ptr)
      return {nullptr};
    modules.push_back(module);
    return mlirModuleGetOperation(module);
  }

private:
  MlirContext context{nullptr};
  std::vector<MlirModule> modules;
};

/// Reads attributes of expected kinds, and remembers whether one was missing or of another kind.
class Reader {
public:
  bool isDamaged() const { return damaged; }

  MlirAttribute any(MlirOperation op, std::string_view name) {
    const MlirAttribute attribute = attributeOf(op, name);
    damaged |= !attribute.ptr;
    return attribute;
  }

  int64_t integer(MlirOperation op, std::string_view name) {
    const MlirAttribute attribute = any(op, name);
    return check(attribute, mlirAttributeIsAInteger) ? mlirIntegerAttrGetValueInt(attribute) : 0;
  }

  std::string string(MlirOperation op, std::string_view name) { return string(any(op, name)); }

  std::vector<std::string> strings(MlirOperation op, std::string_view name) {
    return elements(op, name, [&](MlirAttribute element) { return string(element); });
  }

  /// The texts of an array's elements, whatever they are.
  std::vector<std::string> texts(MlirOperation op, std::string_view name) {
    return elements(op, name, [](MlirAttribute element) { return text(element); });
  }

private:
  bool check(MlirAttribute attribute, bool (*isExpected)(MlirAttribute)) {
    const bool is = attribute.ptr && isExpected(attribute);
    damaged |= !is;
    return is;
  }

  std::string string(MlirAttribute attribute) {
    return check(attribute, mlirAttributeIsAString)
               ? std::string(view(mlirStringAttrGetValue(attribute)))
               : "";
  }

  template <typename Read>
  std::vector<std::string> elements(MlirOperation op, std::string_view name, Read read) {
    std::vector<std::string> values;
    const MlirAttribute array = any(op, name);
    if (check(array, mlirAttributeIsAArray))
      for (intptr_t i = 0, end = mlirArrayAttrGetNumElements(array); i < end; ++i)
        values.push_back(read(mlirArrayAttrGetElement(array, i)));
    return values;
  }

  bool damaged = false;
};

TunedTask readTask(Reader &reader, MlirOperation op) {
  TunedTask task;
  task.id = reader.string(op, "sym_name");
  task.form = reader.string(op, "felix.form");
  const MlirAttribute translationInfo = reader.any(op, "felix.translation_info");
  if (translationInfo.ptr)
    task.attributes.translationInfo = text(translationInfo);
  task.attributes.loweringConfigs = reader.texts(op, "felix.lowering_configs");
  if (attributeOf(op, "felix.workgroups").ptr)
    task.workgroups = reader.integer(op, "felix.workgroups");
  return task;
}

Tuned readModule(Reader &reader, MlirOperation module) {
  Tuned tuned;
  tuned.model = reader.string(module, "felix.model");
  tuned.target = reader.string(module, "felix.target");
  tuned.compiler = reader.string(module, "felix.compiler");
  tuned.targetFlags = reader.strings(module, "felix.target_flags");
  tuned.modelFlags = reader.strings(module, "felix.model_flags");
  if (attributeOf(module, "felix.rewrites").ptr)
    tuned.rewrites = Rewrites{reader.strings(module, "felix.rewrites"), ""};
  forEachOp(mlirRegionGetFirstBlock(mlirOperationGetRegion(module, 0)),
            [&](MlirOperation op) { tuned.tasks.push_back(readTask(reader, op)); });
  return tuned;
}

/// Where the rewrites of a result are: STEM.rewrites.mlir beside STEM.configurations.mlir.
fs::path rewritesFile(const fs::path &configurations) {
  const std::string name = configurations.filename().string();
  const size_t stem = name.size() < fileName.size() ? 0 : name.size() - fileName.size();
  const bool isNamed = name.compare(stem, std::string::npos, fileName) == 0;
  return configurations.parent_path() /
         ((isNamed ? name.substr(0, stem) : name + ".") + std::string(rewritesFileName));
}

/// What is wrong with the script of a result's rewrites, in one line; "" for nothing.
std::string checkScript(QuietContext &context, const Rewrites &rewrites) {
  std::error_code ignored;
  if (!fs::is_regular_file(rewrites.script, ignored))
    return rewrites.script + " is missing: tune again";
  const MlirOperation module = context.parse(rewrites.script);
  const bool isWhole = module.ptr && missingRoots(module, rewrites.roots).empty();
  return isWhole ? "" : rewrites.script + " is damaged: tune again";
}

/// The version a build of the compiler calls itself, as in "3.13.0rc20261016 @ 89ece87".
std::string buildVersion() {
  const std::string revision = ireeCompilerGetRevision();
  return revision.substr(0, revision.find(' '));
}

/// The version of the release that a build was published as: the last candidate, unchanged.
std::string releaseVersion(const std::string &version) {
  return version.substr(0, version.find("rc"));
}

} // namespace

std::set<std::string> missingRoots(MlirOperation module, const std::vector<std::string> &roots) {
  std::set<std::string> missing(roots.begin(), roots.end());
  forEachOp(mlirRegionGetFirstBlock(mlirOperationGetRegion(module, 0)), [&](MlirOperation op) {
    const MlirAttribute symbol = attributeOf(op, "sym_name");
    if (!symbol.ptr)
      return;
    // What the function that replaces a root op is called.
    constexpr std::string_view prefix = "felix_";
    const std::string_view name = view(mlirStringAttrGetValue(symbol));
    if (name.substr(0, prefix.size()) == prefix)
      missing.erase(std::string(name.substr(prefix.size())));
  });
  return missing;
}

std::optional<Tuned> readTuned(const std::string &path, std::string &error) {
  std::error_code ignored;
  const fs::path file =
      fs::is_directory(path, ignored) ? fs::path(path) / fileName : fs::path(path);
  if (!fs::is_regular_file(file, ignored)) {
    error = path + " holds no tuning result: run felix-mlir tune MODEL --out " + path;
    return std::nullopt;
  }
  QuietContext context;
  const MlirOperation module = context.parse(file);
  Reader head;
  const int64_t format = module.ptr ? head.integer(module, "felix.format") : 0;
  if (!module.ptr || head.isDamaged()) {
    error = file.string() + " is damaged or no result of felix-mlir: tune again";
    return std::nullopt;
  }
  if (format != tunedFormat) {
    error = file.string() + " was written by another version of felix-mlir: tune again";
    return std::nullopt;
  }
  Reader body;
  Tuned tuned = readModule(body, module);
  if (body.isDamaged()) {
    error = file.string() + " is damaged: tune again";
    return std::nullopt;
  }
  const std::string version = buildVersion(), release = releaseVersion(version);
  if (tuned.compiler != version && tuned.compiler != release) {
    error = path + " was tuned with iree-base-compiler " + tuned.compiler + ", not " + release +
            ": tune again";
    return std::nullopt;
  }
  if (tuned.rewrites) {
    tuned.rewrites->script = rewritesFile(file).string();
    error = checkScript(context, *tuned.rewrites);
    if (!error.empty())
      return std::nullopt;
  }
  return tuned;
}

} // namespace felix
