/* SPDX-License-Identifier: MIT
 *
 * fastclock.core: the C part of the Lua module, for Lua 5.1 to 5.4. fastclock.lua makes of it what
 * a program sees.
 *
 * The reads are compiled in (inline.h). In a rock the library itself is too, so that this one file
 * is all that is loaded; its names stay visible there, and LuaJIT's FFI calls them.
 */
#define FASTCLOCK_INLINE
#include <fastclock.h>

#include "compat.h"

static const lua_Number ns_per_s = 1e9;

/* ---- Where no source serves -------------------------------------------------------------------
 */

/* Its address is the key in the registry of the function that describes the failure. */
static const char describe_key = 0;

static void push_key(lua_State *L) {
    lua_pushlightuserdata(L, (void *)(uintptr_t)&describe_key);
}

static int on_no_time(lua_State *L) {
    luaL_checktype(L, 1, LUA_TFUNCTION);
    push_key(L);
    lua_pushvalue(L, 1);
    lua_rawset(L, LUA_REGISTRYINDEX);
    return 0;
}

static int __attribute__((cold, noinline)) no_time(lua_State *L) {
    luaL_where(L, 1);
    push_key(L);
    lua_rawget(L, LUA_REGISTRYINDEX);
    if (lua_isnil(L, -1)) /* fastclock.core was loaded by itself */
        return luaL_error(L, "fastclock: no source serves");
    lua_call(L, 0, 1);
    lua_concat(L, 2);
    return lua_error(L);
}

/* ---- The reads --------------------------------------------------------------------------------
 */

/* Three forms of each: a count of nanoseconds, seconds as a float, and the exact pair of seconds
 * and nanoseconds that Lua 5.1 and 5.2 need beyond 2^53 ns. */
#define DEFINE_READ(name, read)                                                                    \
    static int read_##name##_ns(lua_State *L) {                                                    \
        const uint64_t ns = read();                                                                \
        if (__builtin_expect(ns == FC_NO_TIME, 0))                                                 \
            return no_time(L);                                                                     \
        compat_push_count(L, ns);                                                                  \
        return 1;                                                                                  \
    }                                                                                              \
    static int read_##name(lua_State *L) {                                                         \
        const uint64_t ns = read();                                                                \
        if (__builtin_expect(ns == FC_NO_TIME, 0))                                                 \
            return no_time(L);                                                                     \
        lua_pushnumber(L, (lua_Number)(int64_t)ns / ns_per_s);                                     \
        return 1;                                                                                  \
    }                                                                                              \
    static int read_##name##_pair(lua_State *L) {                                                  \
        const uint64_t ns = read();                                                                \
        if (__builtin_expect(ns == FC_NO_TIME, 0))                                                 \
            return no_time(L);                                                                     \
        compat_push_count(L, ns / 1000000000u);                                                    \
        compat_push_count(L, ns % 1000000000u);                                                    \
        return 2;                                                                                  \
    }

/* clang-format off */
#define FORMS(key, name) \
    {key "_ns", read_##name##_ns}, {key, read_##name}, {key "_pair", read_##name##_pair}
/* clang-format on */

DEFINE_READ(realtime, fc_realtime_ns)
DEFINE_READ(monotonic, fc_monotonic_ns)
DEFINE_READ(raw, fc_raw_ns)
DEFINE_READ(boottime, fc_boottime_ns)
DEFINE_READ(tai, fc_tai_ns)
DEFINE_READ(realtime_coarse, fc_realtime_coarse_ns)
DEFINE_READ(monotonic_coarse, fc_monotonic_coarse_ns)
DEFINE_READ(realtime_relaxed, fc_realtime_relaxed_ns)
DEFINE_READ(monotonic_relaxed, fc_monotonic_relaxed_ns)
DEFINE_READ(raw_relaxed, fc_raw_relaxed_ns)

static const luaL_Reg reads[] = {FORMS("realtime", realtime),
                                 FORMS("monotonic", monotonic),
                                 FORMS("raw", raw),
                                 FORMS("boottime", boottime),
                                 FORMS("tai", tai),
                                 FORMS("time_coarse", realtime_coarse),
                                 FORMS("monotonic_coarse", monotonic_coarse),
                                 {NULL, NULL}};

static const luaL_Reg relaxed_reads[] = {FORMS("realtime", realtime_relaxed),
                                         FORMS("monotonic", monotonic_relaxed),
                                         FORMS("raw", raw_relaxed),
                                         {NULL, NULL}};

/* ---- The counter and the processor ------------------------------------------------------------
 */

static int ticks(lua_State *L) {
    const uint64_t count = fc_ticks();
    if (__builtin_expect(count == FC_NO_TIME, 0))
        return no_time(L);
    compat_push_count(L, count);
    return 1;
}

static int ticks_ordered(lua_State *L) {
    const uint64_t count = fc_ticks_ordered();
    if (__builtin_expect(count == FC_NO_TIME, 0))
        return no_time(L);
    compat_push_count(L, count);
    return 1;
}

static int ticks_hz(lua_State *L) {
    compat_push_count(L, fc_ticks_hz());
    return 1;
}

static int ticks_to_ns(lua_State *L) {
    const uint64_t ns = fc_ticks_to_ns(compat_check_count(L, 1));
    luaL_argcheck(L, ns <= INT64_MAX, 1, "is 2^63 nanoseconds or more");
    compat_push_count(L, ns);
    return 1;
}

static int getcpu(lua_State *L) {
    uint32_t cpu, node;
    const int32_t error = fc_getcpu(&cpu, &node);
    if (error < 0)
        return luaL_error(L, "fastclock: the kernel does not tell the processor (error %d)",
                          (int)-error);
    compat_push_count(L, cpu);
    compat_push_count(L, node);
    return 2;
}

/* ---- Choice, as numbers; fastclock.lua gives them names ---------------------------------------
 */

static int select_source(lua_State *L) {
    lua_pushinteger(L, fc_select((int32_t)luaL_checkinteger(L, 1)));
    return 1;
}

static int source_name(lua_State *L) {
    lua_pushstring(L, fc_source_name((int32_t)luaL_checkinteger(L, 1)));
    return 1;
}

static int reason_text(lua_State *L) {
    lua_pushstring(L, fc_reason_text((int32_t)luaL_checkinteger(L, 1)));
    return 1;
}

/* struct fc_info as a table, field by field. */
static int get_info(lua_State *L) {
    struct fc_info info;
    fc_get_info(&info, sizeof info);
    lua_newtable(L);
#define SIGNED_FIELD(name) (lua_pushinteger(L, info.name), lua_setfield(L, -2, #name))
#define COUNT_FIELD(name) (compat_push_count(L, info.name), lua_setfield(L, -2, #name))
    SIGNED_FIELD(source);
    SIGNED_FIELD(wanted);
    SIGNED_FIELD(wanted_reason);
    SIGNED_FIELD(serving);
    SIGNED_FIELD(serving_reason);
    SIGNED_FIELD(coarse_serving);
    SIGNED_FIELD(mode);
    SIGNED_FIELD(time_namespace);
    SIGNED_FIELD(counter);
    SIGNED_FIELD(tai_offset_s);
    COUNT_FIELD(proof_rounds);
    COUNT_FIELD(counter_hz);
    COUNT_FIELD(resolution_ns);
    COUNT_FIELD(coarse_resolution_ns);
    COUNT_FIELD(slow_reads);
#undef SIGNED_FIELD
#undef COUNT_FIELD
    lua_pushstring(L, info.layout);
    lua_setfield(L, -2, "layout");
    lua_newtable(L);
    for (int source = FC_SOURCE_KERNEL_PAGE; source <= FC_SOURCE_LIBC; source++) {
        lua_pushinteger(L, info.reason[source]);
        lua_rawseti(L, -2, source);
    }
    lua_setfield(L, -2, "reason");
    return 1;
}

static const luaL_Reg others[] = {{"on_no_time", on_no_time},
                                  {"ticks", ticks},
                                  {"ticks_ordered", ticks_ordered},
                                  {"ticks_hz", ticks_hz},
                                  {"ticks_to_ns", ticks_to_ns},
                                  {"getcpu", getcpu},
                                  {"select", select_source},
                                  {"source_name", source_name},
                                  {"reason_text", reason_text},
                                  {"get_info", get_info},
                                  {NULL, NULL}};

__attribute__((visibility("default"))) int luaopen_fastclock_core(lua_State *L);

int luaopen_fastclock_core(lua_State *L) {
    lua_newtable(L);
    compat_set_functions(L, others);
    lua_newtable(L);
    compat_set_functions(L, reads);
    lua_setfield(L, -2, "reads");
    lua_newtable(L);
    compat_set_functions(L, relaxed_reads);
    lua_setfield(L, -2, "relaxed");
    lua_pushstring(L, fc_version());
    lua_setfield(L, -2, "version");
    return 1;
}
