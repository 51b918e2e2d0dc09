#include "fetch/digest.h"
