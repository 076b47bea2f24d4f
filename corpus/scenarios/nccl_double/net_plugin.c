/*
 * Network plugins that do not work, each in the way that is chosen when it is compiled:
 *   MISSING_LIBRARY   needs a function of a library that it is not linked with
 *   OLD_INTERFACE     has only the table of an interface that NCCL no longer looks for
 *   NO_PROVIDER       loads, and then its init finds nothing to work with
 */
#include <stddef.h>

typedef void (*Logger)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
enum { SUCCESS = 0, SYSTEM_ERROR = 2, WARN = 2, NET = 16 };

extern int fi_getinfo(unsigned version, const char* node, const char* service, unsigned long flags, void* hints, void** info);

static int init(Logger logger) {
#ifdef MISSING_LIBRARY
  return fi_getinfo(0, NULL, NULL, 0, NULL, NULL);
#else
  logger(WARN, NET, "init", __LINE__, "NET/Fabric : No provider found, check that the fabric's device files are in the container");
  return SYSTEM_ERROR;
#endif
}
static int devices(int* count) { *count = 0; return SUCCESS; }

/* Only the first members are ever used. */
typedef struct { const char* name; int (*init)(Logger); int (*devices)(int*); void* others[24]; } Plugin;
#ifdef OLD_INTERFACE
const Plugin ncclNetPlugin_v2 = {"Fabric", init, devices};
#else
const Plugin ncclNetPlugin_v8 = {"Fabric", init, devices};
const Plugin ncclNetPlugin_v7 = {"Fabric", init, devices};
const Plugin ncclNetPlugin_v6 = {"Fabric", init, devices};
#endif
