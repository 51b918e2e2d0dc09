#pragma once

// The messages, events and commands of the cores.
#include "core/agent_core.h"
#include "core/manager/parts.h"
#include "core/serving.h"
#include "core/worker_core.h"
#include "standard.h"
