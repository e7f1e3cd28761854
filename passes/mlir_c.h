// What this project calls of the MLIR C API, of IREE's embedding API and of their interop.
//
// No wheel ships headers, while iree-base-compiler's libIREECompiler.so exports these functions.
// Names, types and signatures follow the headers of LLVM 24 (mlir-c/*.h) and IREE 3.13
// (iree/compiler/*.h); comments there say what each does.

#ifndef FELIX_PASSES_MLIR_C_H
#define FELIX_PASSES_MLIR_C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// In MLIR's C API a handle is a struct of one pointer, passed by value.
#define FELIX_HANDLE(name)                                                                         \
  typedef struct name {                                                                            \
    void *ptr;                                                                                     \
  } name

FELIX_HANDLE(MlirAttribute);
FELIX_HANDLE(MlirBlock);
FELIX_HANDLE(MlirContext);
FELIX_HANDLE(MlirDiagnostic);
FELIX_HANDLE(MlirDialectHandle);
FELIX_HANDLE(MlirDialectRegistry);
FELIX_HANDLE(MlirExternalPass);
FELIX_HANDLE(MlirIdentifier);
FELIX_HANDLE(MlirLocation);
FELIX_HANDLE(MlirModule);
FELIX_HANDLE(MlirOpOperand);
FELIX_HANDLE(MlirOperation);
FELIX_HANDLE(MlirPass);
FELIX_HANDLE(MlirPassManager);
FELIX_HANDLE(MlirRegion);
FELIX_HANDLE(MlirType);
FELIX_HANDLE(MlirTypeID);
FELIX_HANDLE(MlirValue);

#undef FELIX_HANDLE

// mlir-c/Support.h

typedef struct MlirStringRef {
  const char *data;
  size_t length;
} MlirStringRef;

typedef struct MlirLogicalResult {
  int8_t value;
} MlirLogicalResult;

typedef void (*MlirStringCallback)(MlirStringRef, void *);

MlirTypeID mlirTypeIDCreate(const void *ptr);

// mlir-c/IR.h

typedef struct MlirNamedAttribute {
  MlirIdentifier name;
  MlirAttribute attribute;
} MlirNamedAttribute;

typedef enum MlirWalkResult {
  MlirWalkResultAdvance,
  MlirWalkResultInterrupt,
  MlirWalkResultSkip
} MlirWalkResult;

typedef enum MlirWalkOrder { MlirWalkPreOrder, MlirWalkPostOrder } MlirWalkOrder;

typedef MlirWalkResult (*MlirOperationWalkCallback)(MlirOperation, void *userData);

MlirDialectRegistry mlirDialectRegistryCreate(void);
void mlirDialectRegistryDestroy(MlirDialectRegistry registry);
MlirContext mlirContextCreateWithRegistry(MlirDialectRegistry registry, bool threadingEnabled);
void mlirContextDestroy(MlirContext context);

MlirModule mlirModuleCreateParse(MlirContext context, MlirStringRef module);
MlirOperation mlirModuleGetOperation(MlirModule module);
void mlirModuleDestroy(MlirModule module);

MlirContext mlirOperationGetContext(MlirOperation op);
MlirLocation mlirOperationGetLocation(MlirOperation op);
MlirIdentifier mlirOperationGetName(MlirOperation op);
MlirOperation mlirOperationGetParentOperation(MlirOperation op);
intptr_t mlirOperationGetNumRegions(MlirOperation op);
MlirRegion mlirOperationGetRegion(MlirOperation op, intptr_t pos);
MlirOperation mlirOperationGetNextInBlock(MlirOperation op);
intptr_t mlirOperationGetNumOperands(MlirOperation op);
MlirValue mlirOperationGetOperand(MlirOperation op, intptr_t pos);
intptr_t mlirOperationGetNumResults(MlirOperation op);
MlirValue mlirOperationGetResult(MlirOperation op, intptr_t pos);
intptr_t mlirOperationGetNumAttributes(MlirOperation op);
MlirNamedAttribute mlirOperationGetAttribute(MlirOperation op, intptr_t pos);
MlirAttribute mlirOperationGetAttributeByName(MlirOperation op, MlirStringRef name);
void mlirOperationSetAttributeByName(MlirOperation op, MlirStringRef name, MlirAttribute attr);
void mlirOperationWalk(MlirOperation op, MlirOperationWalkCallback callback, void *userData,
                       MlirWalkOrder walkOrder);

MlirBlock mlirRegionGetFirstBlock(MlirRegion region);
MlirBlock mlirBlockGetNextInRegion(MlirBlock block);
MlirOperation mlirBlockGetFirstOperation(MlirBlock block);
intptr_t mlirBlockGetNumArguments(MlirBlock block);
MlirValue mlirBlockGetArgument(MlirBlock block, intptr_t pos);

bool mlirValueIsABlockArgument(MlirValue value);
MlirOperation mlirOpResultGetOwner(MlirValue value);
MlirType mlirValueGetType(MlirValue value);
MlirOpOperand mlirValueGetFirstUse(MlirValue value);
bool mlirOpOperandIsNull(MlirOpOperand opOperand);

void mlirTypePrint(MlirType type, MlirStringCallback callback, void *userData);
void mlirAttributePrint(MlirAttribute attr, MlirStringCallback callback, void *userData);
MlirAttribute mlirAttributeParseGet(MlirContext context, MlirStringRef attr);
MlirStringRef mlirIdentifierStr(MlirIdentifier ident);

// mlir-c/BuiltinAttributes.h

bool mlirAttributeIsAArray(MlirAttribute attr);
intptr_t mlirArrayAttrGetNumElements(MlirAttribute attr);
MlirAttribute mlirArrayAttrGetElement(MlirAttribute attr, intptr_t pos);
bool mlirAttributeIsAInteger(MlirAttribute attr);
int64_t mlirIntegerAttrGetValueInt(MlirAttribute attr);
bool mlirAttributeIsAString(MlirAttribute attr);
MlirAttribute mlirStringAttrGet(MlirContext ctx, MlirStringRef str);
MlirStringRef mlirStringAttrGetValue(MlirAttribute attr);

// mlir-c/Diagnostics.h

typedef uint64_t MlirDiagnosticHandlerID;
typedef MlirLogicalResult (*MlirDiagnosticHandler)(MlirDiagnostic, void *userData);

MlirDiagnosticHandlerID mlirContextAttachDiagnosticHandler(MlirContext context,
                                                           MlirDiagnosticHandler handler,
                                                           void *userData,
                                                           void (*deleteUserData)(void *));
void mlirEmitError(MlirLocation location, const char *message);

// mlir-c/Pass.h

typedef struct MlirExternalPassCallbacks {
  void (*construct)(void *userData);
  void (*destruct)(void *userData);
  MlirLogicalResult (*initialize)(MlirContext ctx, void *userData);
  void *(*clone)(void *userData);
  void (*run)(MlirOperation op, MlirExternalPass pass, void *userData);
} MlirExternalPassCallbacks;

MlirPass mlirCreateExternalPass(MlirTypeID passID, MlirStringRef name, MlirStringRef argument,
                                MlirStringRef description, MlirStringRef opName,
                                intptr_t nDependentDialects, MlirDialectHandle *dependentDialects,
                                MlirExternalPassCallbacks callbacks, void *userData);
void mlirExternalPassSignalFailure(MlirExternalPass pass);
void mlirPassManagerAddOwnedPass(MlirPassManager passManager, MlirPass pass);

// iree/compiler/embedding_api.h

typedef struct iree_compiler_error_t iree_compiler_error_t;
typedef struct iree_compiler_session_t iree_compiler_session_t;
typedef struct iree_compiler_invocation_t iree_compiler_invocation_t;
typedef struct iree_compiler_source_t iree_compiler_source_t;
typedef struct iree_compiler_output_t iree_compiler_output_t;

enum iree_compiler_pipeline_t { IREE_COMPILER_PIPELINE_STD = 0 };

void ireeCompilerErrorDestroy(iree_compiler_error_t *error);
const char *ireeCompilerErrorGetMessage(iree_compiler_error_t *error);

void ireeCompilerGlobalInitialize(void);
void ireeCompilerGlobalShutdown(void);
const char *ireeCompilerGetRevision(void);
void ireeCompilerSetupGlobalCL(int argc, const char **argv, const char *banner,
                               bool installSignalHandlers);

iree_compiler_session_t *ireeCompilerSessionCreate(void);
void ireeCompilerSessionDestroy(iree_compiler_session_t *session);

iree_compiler_invocation_t *ireeCompilerInvocationCreate(iree_compiler_session_t *session);
void ireeCompilerInvocationDestroy(iree_compiler_invocation_t *inv);
void ireeCompilerInvocationEnableConsoleDiagnostics(iree_compiler_invocation_t *inv);
void ireeCompilerInvocationSetCompileFromPhase(iree_compiler_invocation_t *inv, const char *phase);
void ireeCompilerInvocationSetCompileToPhase(iree_compiler_invocation_t *inv, const char *phase);
void ireeCompilerInvocationSetDumpCompilationPhasesTo(iree_compiler_invocation_t *inv,
                                                      const char *path);
void ireeCompilerInvocationSetVerifyIR(iree_compiler_invocation_t *inv, bool enable);
void ireeCompilerInvocationSetupRemarks(iree_compiler_invocation_t *inv, const char *remarksFilter,
                                        const char *remarksOutputFile);
bool ireeCompilerInvocationParseSource(iree_compiler_invocation_t *inv,
                                       iree_compiler_source_t *source);
bool ireeCompilerInvocationPipeline(iree_compiler_invocation_t *inv,
                                    enum iree_compiler_pipeline_t pipeline);
iree_compiler_error_t *ireeCompilerInvocationOutputIR(iree_compiler_invocation_t *inv,
                                                      iree_compiler_output_t *output);
iree_compiler_error_t *ireeCompilerInvocationOutputIRBytecode(iree_compiler_invocation_t *inv,
                                                              iree_compiler_output_t *output,
                                                              int bytecodeVersion);
iree_compiler_error_t *ireeCompilerInvocationOutputVMBytecode(iree_compiler_invocation_t *inv,
                                                              iree_compiler_output_t *output);
iree_compiler_error_t *ireeCompilerInvocationOutputVMCSource(iree_compiler_invocation_t *inv,
                                                             iree_compiler_output_t *output);

iree_compiler_error_t *ireeCompilerSourceOpenFile(iree_compiler_session_t *session,
                                                  const char *filePath,
                                                  iree_compiler_source_t **out_source);
void ireeCompilerSourceDestroy(iree_compiler_source_t *source);

iree_compiler_error_t *ireeCompilerOutputOpenFile(const char *filePath,
                                                  iree_compiler_output_t **out_output);
void ireeCompilerOutputKeep(iree_compiler_output_t *output);
void ireeCompilerOutputDestroy(iree_compiler_output_t *output);

// iree/compiler/mlir_interop.h

void ireeCompilerRegisterDialects(MlirDialectRegistry registry);
bool ireeCompilerInvocationImportStealModule(iree_compiler_invocation_t *inv,
                                             MlirOperation moduleOp);
MlirOperation ireeCompilerInvocationExportStealModule(iree_compiler_invocation_t *inv);

// iree/compiler/tool_entry_points_api.h

int ireeCompilerRunMain(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif // FELIX_PASSES_MLIR_C_H
