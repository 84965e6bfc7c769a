// A loop over independent items on several cores: reference/threads.h.
#pragma once
#include "reference/threads.h"
