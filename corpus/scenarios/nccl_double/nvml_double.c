/*
 * A stand-in for libnvidia-ml.so.1: as many devices as cuda_double.c has, without NVLink and without fabric.
 * It reads the same CUDA_DOUBLE_DEVICES, CUDA_DOUBLE_BUS and CUDA_DOUBLE_SAME_BUS, and CUDA_DOUBLE_P2P_STATUS (0, "OK").
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
typedef int Result;

static long order(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text && *text ? strtol(text, NULL, 0) : otherwise;
}

Result nvmlInit_v2(void) { return SUCCESS; }
Result nvmlInit(void) { return SUCCESS; }
Result nvmlShutdown(void) { return SUCCESS; }
const char* nvmlErrorString(Result code) { return code == SUCCESS ? "Success" : "Not Supported"; }
Result nvmlDeviceGetCount_v2(unsigned* count) { *count = (unsigned)order("CUDA_DOUBLE_DEVICES", 8); return SUCCESS; }
Result nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

/* A handle is the device's number plus one. */
Result nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { *device = (void*)(uintptr_t)(index + 1); return SUCCESS; }
Result nvmlDeviceGetHandleByIndex(unsigned index, void** device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }
Result nvmlDeviceGetHandleByPciBusId_v2(const char* text, void** device) {
  unsigned domain, bus;
  if (sscanf(text, "%x:%x", &domain, &bus) != 2) return NOT_FOUND;
  long index = order("CUDA_DOUBLE_SAME_BUS", 0) ? 0 : (long)bus - order("CUDA_DOUBLE_BUS", 0x10);
  if (index < 0 || index >= order("CUDA_DOUBLE_DEVICES", 8)) return NOT_FOUND;
  return nvmlDeviceGetHandleByIndex((unsigned)index, device);
}
Result nvmlDeviceGetHandleByPciBusId(const char* text, void** device) {
  return nvmlDeviceGetHandleByPciBusId_v2(text, device);
}
Result nvmlDeviceGetIndex(void* device, unsigned* index) { *index = (unsigned)(uintptr_t)device - 1; return SUCCESS; }
Result nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) { *major = 8; *minor = 0; return SUCCESS; }
/* 1: the chipset does not support it. */
Result nvmlDeviceGetP2PStatus(void* a, void* b, int index, int* status) {
  *status = (int)order("CUDA_DOUBLE_P2P_STATUS", 0);
  return SUCCESS;
}
Result nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) { return NOT_SUPPORTED; }
Result nvmlDeviceGetNvLinkRemotePciInfo(void* device, unsigned link, void* pci) { return NOT_SUPPORTED; }
Result nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, void* pci) { return NOT_SUPPORTED; }
Result nvmlDeviceGetNvLinkCapability(void* device, unsigned link, int capability, unsigned* value) { return NOT_SUPPORTED; }
Result nvmlDeviceGetFieldValues(void* device, int count, void* values) { return NOT_SUPPORTED; }
