/* SPDX-License-Identifier: MIT
 *
 * The stand-ins once more, for programs that have asked a 32-bit C library for 64-bit times: there
 * struct timespec is another one, and fastclock.h leads to these by other symbols.
 */
#define FC_POSIX_TIME64_
#undef _TIME_BITS
#undef _FILE_OFFSET_BITS
#define _TIME_BITS 64
#define _FILE_OFFSET_BITS 64
#include <time.h>

#if defined(__USE_TIME_BITS64) && defined(__TIMESIZE) && __TIMESIZE == 32
#include "posix.c"
#else
typedef int fc_one_width_only; /* C knows no empty file */
#endif
