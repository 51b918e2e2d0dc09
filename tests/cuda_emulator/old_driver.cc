// A driver that says it is new enough and lacks most of what one has: for the message that names
// what is missing.

#define EXPORT __attribute__((visibility("default")))
#pragma clang diagnostic ignored "-Wmissing-prototypes"

extern "C" {

EXPORT int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}
EXPORT int cuGetErrorName(int /*status*/, const char** name) {
  *name = nullptr;
  return 1;
}
EXPORT int cuGetErrorString(int /*status*/, const char** text) {
  *text = nullptr;
  return 1;
}
}
