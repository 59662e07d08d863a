#include "recording.h"
const tide_reader tide_trace_reader = {"torch.profiler trace", 0, 0, 0};
