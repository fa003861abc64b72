// SPDX-License-Identifier: MIT
//
// The inlined reads as C++ compiles them.
#define FASTCLOCK_INLINE
#include <fastclock.h>

#include "inlined.h"

#define DEFINE_INLINED(name)                                                                       \
    static uint64_t inlined_##name() {                                                             \
        return name();                                                                             \
    }
INLINED_NAMES(DEFINE_INLINED)

#define NAME_INLINED(name) inlined_##name,
extern "C" {
uint64_t (*const inlined_from_cxx[])(void) = {INLINED_NAMES(NAME_INLINED)};
}
