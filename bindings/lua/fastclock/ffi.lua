-- SPDX-License-Identifier: MIT
--
-- fastclock.ffi: what fastclock.core is, for LuaJIT and by its FFI, so that a read in a compiled
-- loop is a call of C and nothing else. fastclock.lua makes of it what a program sees.
--
-- The declarations are those of abi.h, which is installed beside this file. The library is the C
-- module of the rock, which carries it, or libfastclock.so.

local ffi = require "ffi"

-- This file's own folder, with the slash: where hosts with loaders of their own (Neovim) keep what
-- belongs together, too.
local folder = debug.getinfo(1, "S").source:match "^@(.*/)" or "./"

-- A program may drop and load this module again, or have declared the ABI itself.
if not pcall(ffi.typeof, "struct fc_info") then
    local path = folder .. "abi.h"
    local file, message = io.open(path)
    if not file then
        error("fastclock: the declarations are missing from beside ffi.lua: " .. message, 0)
    end
    ffi.cdef(file:read "*a")
    file:close()
end

local function load_library()
    local tried = {}
    local module = package.searchpath("fastclock.core", package.cpath)
    for _, name in ipairs {
        module or folder .. "core.so",
        folder .. "libfastclock.so",
        folder .. "../libfastclock.so",
        "fastclock",
    } do
        local found, library = pcall(ffi.load, name)
        if found then
            return library
        end
        tried[#tried + 1] = "\n\t" .. library
    end
    error("fastclock: found neither its C module nor libfastclock.so:" .. table.concat(tried), 0)
end

local C = load_library()
local describe_no_time

-- The closures below hold on to this function, and it to the library: a read that outlives the
-- module still has something to call.
local function no_time()
    local what = C and describe_no_time and describe_no_time() or "fastclock: no source serves"
    error(what, 3)
end

-- Each read has code of its own, made from one text, since LuaJIT treats what a function closes
-- over as constant only as long as few functions share its code. The result is taken as int64_t,
-- so that the difference of two stamps may be negative; FC_NO_TIME is then -1.
local forms = [[
    local read, no_time = ...
    local tonumber = tonumber
    local function NAME_ns()
        local ns = read()
        if ns < 0 then no_time() end
        return ns
    end
    local function NAME()
        local ns = read()
        if ns < 0 then no_time() end
        return tonumber(ns) / 1e9
    end
    local function NAME_pair()
        local ns = read()
        if ns < 0 then no_time() end
        local s = ns / 1000000000
        return tonumber(s), tonumber(ns - s * 1000000000)
    end
    return NAME_ns, NAME, NAME_pair
]]

local signed_read = ffi.typeof "int64_t (*)(void)"

local function define(reads, name, symbol)
    local make = assert(loadstring(forms:gsub("NAME", name), "=fastclock." .. name))
    reads[name .. "_ns"], reads[name], reads[name .. "_pair"] =
        make(ffi.cast(signed_read, C[symbol]), no_time)
end

local reads, relaxed = {}, {}
define(reads, "realtime", "fc_realtime_ns")
define(reads, "monotonic", "fc_monotonic_ns")
define(reads, "raw", "fc_raw_ns")
define(reads, "boottime", "fc_boottime_ns")
define(reads, "tai", "fc_tai_ns")
define(reads, "time_coarse", "fc_realtime_coarse_ns")
define(reads, "monotonic_coarse", "fc_monotonic_coarse_ns")
define(relaxed, "realtime", "fc_realtime_relaxed_ns")
define(relaxed, "monotonic", "fc_monotonic_relaxed_ns")
define(relaxed, "raw", "fc_raw_relaxed_ns")

local core = { reads = reads, relaxed = relaxed, lib = C, version = ffi.string(C.fc_version()) }

function core.on_no_time(describe)
    describe_no_time = describe
end

-- The counter and the processor

local int64 = ffi.typeof "int64_t"
local uint64 = ffi.typeof "uint64_t"
local ticks = ffi.cast(signed_read, C.fc_ticks)
local ticks_ordered = ffi.cast(signed_read, C.fc_ticks_ordered)

function core.ticks()
    local count = ticks()
    if count == -1LL then no_time() end
    return count
end

function core.ticks_ordered()
    local count = ticks_ordered()
    if count == -1LL then no_time() end
    return count
end

function core.ticks_hz()
    return ffi.cast(int64, C.fc_ticks_hz())
end

local function bad_argument(what)
    error("bad argument #1 to 'ticks_to_ns' (" .. what .. ")", 3)
end

function core.ticks_to_ns(count)
    if type(count) == "number" then
        if not (count >= 0) then bad_argument "must not be negative" end
        if count >= 2 ^ 63 then bad_argument "must be below 2^63" end
        if count % 1 ~= 0 then bad_argument "must be a whole number" end
    elseif ffi.istype(int64, count) then
        if count < 0 then bad_argument "must not be negative" end
    elseif not ffi.istype(uint64, count) then
        bad_argument("number expected, got " .. (count == nil and "no value" or type(count)))
    end
    local ns = ffi.cast(int64, C.fc_ticks_to_ns(count))
    if ns < 0 then bad_argument "is 2^63 nanoseconds or more" end
    return ns
end

local cpu_and_node = ffi.new "uint32_t[2]"

function core.getcpu()
    local failed = C.fc_getcpu(cpu_and_node, cpu_and_node + 1)
    if failed < 0 then
        error("fastclock: the kernel does not tell the processor (error " .. -failed .. ")", 2)
    end
    return cpu_and_node[0], cpu_and_node[1]
end

-- Choice, as numbers; fastclock.lua gives them names

function core.select(source)
    return C.fc_select(source)
end

function core.source_name(source)
    return ffi.string(C.fc_source_name(source))
end

function core.reason_text(reason)
    return ffi.string(C.fc_reason_text(reason))
end

function core.get_info()
    local info = ffi.new "struct fc_info"
    C.fc_get_info(info, ffi.sizeof(info))
    local told = { layout = ffi.string(info.layout), reason = {} }
    for _, field in ipairs {
        "source", "wanted", "wanted_reason", "serving", "serving_reason", "coarse_serving", "mode",
        "time_namespace", "counter", "tai_offset_s", "proof_rounds", "counter_hz", "resolution_ns",
        "coarse_resolution_ns", "slow_reads",
    } do
        told[field] = tonumber(info[field])
    end
    for source = C.FC_SOURCE_KERNEL_PAGE, C.FC_SOURCE_LIBC do
        told.reason[source] = info.reason[source]
    end
    return told
end

return core
