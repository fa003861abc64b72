-- SPDX-License-Identifier: MIT
--
-- What the specs share: which interpreter runs them, the clocks, brackets of two system calls, and
-- child processes.

local support = {}

support.is_luajit = type(jit) == "table"
support.has_integers = math.type ~= nil
-- Whether a count of nanoseconds is exact beyond 2^53.
support.counts_are_exact = support.is_luajit or support.has_integers

-- The interpreter's own command, and the tree that bindings/lua/build made for it.
support.lua = assert(os.getenv "FASTCLOCK_TEST_LUA", "the specs are run by tests/lua/run")
support.tree = assert(os.getenv "FASTCLOCK_TEST_TREE", "the specs are run by tests/lua/run")
support.lua_version = _VERSION:match "%d%.%d"
support.c_module = support.tree .. "/lib/lua/" .. support.lua_version .. "/fastclock/core.so"
support.lua_modules = support.tree .. "/share/lua/" .. support.lua_version

-- The names of the reads, each with the kernel's number of its clock.
support.clocks = {
    time = 0,
    realtime = 0,
    monotonic = 1,
    perf_counter = 1,
    raw = 4,
    time_coarse = 5,
    monotonic_coarse = 6,
    boottime = 7,
    tai = 11,
}
support.relaxed_clocks = { time = 0, realtime = 0, monotonic = 1, perf_counter = 1, raw = 4 }

-- The names of a table of clocks, in one order in every run.
function support.sorted(clocks)
    local names = {}
    for name in pairs(clocks) do
        names[#names + 1] = name
    end
    table.sort(names)
    return names
end

-- A clock by raw system call, as a count of the same kind as the module's.
if support.is_luajit then
    local ffi = require "ffi"
    ffi.cdef "int64_t probe_syscall_ns(int32_t clock);"
    local probe = ffi.load(support.tree .. "/probe/probe.so")
    function support.syscall_ns(clock)
        local ns = probe.probe_syscall_ns(clock)
        assert(ns >= 0, "clock_gettime failed")
        return ns
    end
else
    support.syscall_ns = require("probe").syscall_ns
end

-- A bracket says nothing if its own ends went back, since the clock was set in between, or if they
-- are so far apart that the process did not run.
local BRACKET_MAX_NS = 100000000

-- Calls read() `rounds` times, each between two calls of kernel(), which give counts of the same
-- kind. Returns how many readings lay outside their brackets, and how many brackets said nothing.
function support.bracket(read, kernel, rounds)
    local outside, void = 0, 0
    local before = kernel()
    for _ = 1, rounds do
        local ours = read()
        local after = kernel()
        if after < before or after - before > BRACKET_MAX_NS then
            void = void + 1
        elseif ours < before or ours > after then
            outside = outside + 1
        end
        before = after
    end
    return outside, void
end

-- Runs Lua text in a new process of this interpreter. `environment` is a table of variables.
-- Returns what it wrote, on standard output and error, and its exit code.
function support.child(text, environment)
    local name = os.tmpname()
    local file = assert(io.open(name, "w"))
    file:write(text)
    file:close()
    local words = { "env" }
    for variable, value in pairs(environment or {}) do
        words[#words + 1] = variable .. "='" .. value .. "'"
    end
    words[#words + 1] = support.lua .. " " .. name .. " 2>&1; echo \" exit:$?\""
    local pipe = assert(io.popen(table.concat(words, " ")))
    local output, code = pipe:read("*a"):match "^(.*) exit:(%d+)\n$"
    pipe:close()
    os.remove(name)
    return output, tonumber(code)
end

return support
