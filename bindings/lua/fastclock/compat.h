/* SPDX-License-Identifier: MIT
 *
 * What differs between Lua 5.1 (and LuaJIT, which has its interface), 5.2, 5.3 and 5.4, as far as
 * the C part of the module is concerned: how a table of functions is filled, and what a count is.
 */
#ifndef FASTCLOCK_LUA_COMPAT_H
#define FASTCLOCK_LUA_COMPAT_H

#include <lauxlib.h>
#include <lua.h>
#include <stdint.h>

#if LUA_VERSION_NUM < 501 || LUA_VERSION_NUM > 504
#error "fastclock knows Lua 5.1 to 5.4"
#endif

#if LUA_VERSION_NUM >= 503

#if LUA_MAXINTEGER < INT64_MAX
#error "fastclock needs a Lua whose integers have 64 bits"
#endif

/* A count as Lua's integer: exact; nanoseconds since 1970 fit until the year 2262. */
static inline void compat_push_count(lua_State *L, uint64_t count) {
    lua_pushinteger(L, (lua_Integer)count);
}

static inline uint64_t compat_check_count(lua_State *L, int argument) {
    const lua_Integer count = luaL_checkinteger(L, argument);
    luaL_argcheck(L, count >= 0, argument, "must not be negative");
    return (uint64_t)count;
}

#else

/* A count as a double: exact to 2^53, the nearest double beyond. By way of int64_t, for which
 * processors have an instruction that uint64_t lacks. */
static inline void compat_push_count(lua_State *L, uint64_t count) {
    lua_pushnumber(L, (lua_Number)(int64_t)count);
}

static inline uint64_t compat_check_count(lua_State *L, int argument) {
    const lua_Number two_to_63 = 9223372036854775808.0;
    const lua_Number count = luaL_checknumber(L, argument);
    luaL_argcheck(L, count >= 0, argument, "must not be negative"); /* nor NaN */
    luaL_argcheck(L, count < two_to_63, argument, "must be below 2^63");
    luaL_argcheck(L, count == (lua_Number)(int64_t)count, argument, "must be a whole number");
    return (uint64_t)count;
}

#endif

/* Sets `functions` in the table on top of the stack. */
static inline void compat_set_functions(lua_State *L, const luaL_Reg *functions) {
#if LUA_VERSION_NUM >= 502
    luaL_setfuncs(L, functions, 0);
#else
    for (; functions->name; functions++) {
        lua_pushcfunction(L, functions->func);
        lua_setfield(L, -2, functions->name);
    }
#endif
}

#endif
