-- SPDX-License-Identifier: MIT
--
-- What each way of reading the time costs from Lua, as JSON on standard output, under whichever
-- interpreter runs this file. Needs the rock that bindings/lua/build has built for it.
--
-- A row is a loop of a thousand reads, with code of its own, so that LuaJIT compiles each loop for
-- what is read in it. A round runs each row once, in an order that changes; the minimum and the
-- median over all rounds are the result. The cost of the loop is a row, and not taken off.

local usage = [[
usage: LUA bench/lua/reads.lua [--rounds N]
Measures what each way of reading the time costs under this interpreter; JSON on standard output.
  --rounds N  rounds over all rows, 1 to 100000; 500 if not given
]]

local rounds = 500
do
    local i = 1
    while arg[i] do
        local value = arg[i] == "--rounds" and (arg[i + 1] or ""):match "^%d+$"
        if arg[i] == "--help" then
            io.write(usage)
            os.exit(0)
        elseif value and tonumber(value) >= 1 and tonumber(value) <= 100000 then
            rounds = tonumber(value)
            i = i + 2
        else
            io.stderr:write("reads.lua: cannot take '", arg[i], "'\n", usage)
            os.exit(2)
        end
    end
end

local version = _VERSION:match "%d%.%d"
local is_luajit = type(jit) == "table"
local folder = arg[0]:match "^(.*/)" or "./"
local tree = folder .. "../../build/lua/" .. (is_luajit and "luajit" or version)
package.path = ("%s/share/lua/%s/?.lua;%s"):format(tree, version, package.path)
package.cpath = ("%s/lib/lua/%s/?.so;%s/probe/?.so;%s"):format(tree, version, tree, package.cpath)

local fastclock = require "fastclock"
local probe = require "probe"

-- The rows

local rows = {}
local load_text = loadstring or load
local READS = 1000

-- `call` is the Lua text of one read, which finds the function that is read as `read` and what else
-- it needs as `more`. What it adds to `sum` is not dropped by a compiler.
local function row(name, baseline, call, read, more)
    local text = "local read, more = ... return function(reads) local sum = 0 for _ = 1, reads do "
        .. call .. " end return sum end"
    local run = assert(load_text(text, "=" .. name))(read, more)
    rows[#rows + 1] = { name = name, baseline = baseline, run = run, costs_ns = {} }
end

row("loop", nil, "")
local matching
if is_luajit then
    local ffi = require "ffi"
    ffi.cdef [[
        struct reads_timespec { long tv_sec, tv_nsec; };
        int clock_gettime(int, struct reads_timespec *);
        uint64_t probe_empty(void);
    ]]
    local probe_library = ffi.load(tree .. "/probe/probe.so")
    row("empty C function", nil, "read.probe_empty()", probe_library)
    row("os.time", nil, "read()", os.time)
    row("os.clock", nil, "read()", os.clock)
    matching = "clock_gettime"
    row(matching, nil, "read.clock_gettime(1, more)", ffi.C, ffi.new "struct reads_timespec")
    row("fc_monotonic_ns", matching, "read.fc_monotonic_ns()", fastclock.lib)
    row("fc_monotonic_relaxed_ns", matching, "read.fc_monotonic_relaxed_ns()", fastclock.lib)
else
    matching = "empty C function"
    row(matching, nil, "read()", probe.empty)
    row("os.time", nil, "read()", os.time)
    row("os.clock", nil, "read()", os.clock)
end
row("fastclock ordered", matching, "read()", fastclock.monotonic_ns)
row("fastclock relaxed", matching, "read()", fastclock.relaxed.monotonic_ns)
row("fastclock coarse", matching, "read()", fastclock.monotonic_coarse_ns)
row("fastclock ordered, seconds", matching, "sum = sum + read()", fastclock.monotonic)
row("fastclock ordered, pair", matching, "local s, ns = read() sum = sum + s + ns",
    fastclock.monotonic_pair)

-- Measuring

local clock = fastclock.monotonic_ns

local order = {}
for i, measured in ipairs(rows) do
    order[i] = measured
end
for _ = 1, rounds do
    for i = #order, 2, -1 do
        local j = math.random(i)
        order[i], order[j] = order[j], order[i]
    end
    for _, measured in ipairs(order) do
        local start = clock()
        measured.run(READS)
        measured.costs_ns[#measured.costs_ns + 1] = tonumber(clock() - start) / READS
    end
end

-- Output

local lines = {}
for i, measured in ipairs(rows) do
    local costs_ns = measured.costs_ns
    table.sort(costs_ns)
    lines[i] = ('    {"name": "%s", "baseline": %s, "min_ns": %.4f, "median_ns": %.4f}'):format(
        measured.name, measured.baseline and '"' .. measured.baseline .. '"' or "null",
        costs_ns[1], costs_ns[math.ceil(#costs_ns / 2)])
end
io.write('{\n  "interpreter": "', is_luajit and jit.version or _VERSION, '",\n  "rounds": ', rounds,
    ',\n  "rows": [\n', table.concat(lines, ",\n"), "\n  ]\n}\n")
