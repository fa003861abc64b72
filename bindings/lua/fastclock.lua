-- SPDX-License-Identifier: MIT
--
-- fastclock: the kernel's own time, at the price of reading the processor's counter.
--
--     local fastclock = require "fastclock"
--     local before = fastclock.monotonic_ns()
--
-- Reads, each in three forms: NAME_ns() a count of nanoseconds, NAME() seconds as a float,
-- NAME_pair() seconds and nanoseconds, both exact everywhere. NAME is one of: time and realtime
-- (one clock, two names), monotonic and perf_counter (one clock, two names), raw, boottime, tai,
-- and time_coarse, monotonic_coarse for the values at the kernel's last tick. vtime64() is
-- realtime_ns() by its old name. The table `relaxed` has the reads without a fence, half the cost,
-- under the same names: time, realtime, monotonic, perf_counter, raw. A relaxed reading may be
-- early by the depth of the pipeline, and two threads that hand readings to each other may see them
-- out of order.
--
-- What a count is: an integer in Lua 5.3 and later; an int64_t cdata in LuaJIT, whose differences
-- may be negative (tonumber() makes a number of one); a number in Lua 5.1 and 5.2, which is exact
-- to 2^53. That is 104 days after boot for monotonic_ns(); realtime_ns() is beyond it, and off by
-- up to 128 ns there. Counts of realtime fit until the year 2262.
--
-- A read raises an error, with the reason, where no source serves; it never invents a time. All
-- functions may be called from any coroutine; threads with a Lua state each share one choice of
-- source.

-- LuaJIT may have been built without its FFI; the C part serves there too.
local backend = require(type(jit) == "table" and pcall(require, "ffi") and "fastclock.ffi"
    or "fastclock.core")

local fastclock = backend.reads
fastclock.relaxed = backend.relaxed
fastclock._VERSION = "fastclock " .. backend.version

for _, form in ipairs { "", "_ns", "_pair" } do
    for _, reads in ipairs { fastclock, fastclock.relaxed } do
        reads["time" .. form] = reads["realtime" .. form]
        reads["perf_counter" .. form] = reads["monotonic" .. form]
    end
end
fastclock.vtime64 = fastclock.realtime_ns

-- The functions of abi.h by LuaJIT's FFI, as fastclock.lib.fc_monotonic_ns(); nil elsewhere.
fastclock.lib = backend.lib

-- ticks(), ticks_ordered(): the processor's counter, a count as above; nanoseconds of `raw` where
-- it may not be read.
-- ticks_hz(): ticks a second; measured, which takes about 20 ms, where the kernel does not tell.
-- ticks_to_ns(ticks): a difference of ticks in nanoseconds, rounded down; ticks from 0 to 2^63 - 1.
-- getcpu(): the processor and the NUMA node that this thread is on, as two numbers.
fastclock.ticks = backend.ticks
fastclock.ticks_ordered = backend.ticks_ordered
fastclock.ticks_hz = backend.ticks_hz
fastclock.ticks_to_ns = backend.ticks_to_ns
fastclock.getcpu = backend.getcpu

-- enum fc_source
local AUTO, NONE, KERNEL_PAGE, LIBC = -1, 0, 1, 5

local source_name, reason_text = backend.source_name, backend.reason_text

-- The sources that can be asked for, by the names that FASTCLOCK_SOURCE takes.
local source_numbers, allowed_names = {}, {}
for number = AUTO, LIBC do
    if number ~= NONE then
        local name = number == LIBC and "off" or source_name(number)
        source_numbers[name] = number
        allowed_names[#allowed_names + 1] = name
    end
end
allowed_names = table.concat(allowed_names, ", ")

local function reason_or_nil(reason)
    return reason ~= 0 and reason_text(reason) or nil
end

local function no_source(raw)
    local refusals = {}
    for number = KERNEL_PAGE, LIBC do
        if raw.reason[number] ~= 0 then
            refusals[#refusals + 1] = source_name(number) .. ": " .. reason_text(raw.reason[number])
        end
    end
    return "no source serves (" .. table.concat(refusals, "; ") .. ")"
end

local function why(raw)
    if raw.wanted_reason ~= 0 then
        return reason_text(raw.wanted_reason)
    elseif raw.source == NONE then
        return no_source(raw)
    elseif raw.wanted == raw.source then
        return source_name(raw.source) .. " was asked for"
    end
    local first = raw.wanted == AUTO and KERNEL_PAGE or raw.wanted
    if raw.source == first then
        return "the first choice; it passed " .. raw.proof_rounds
            .. " readings bracketed by system calls"
    end
    return source_name(first) .. " does not serve: " .. reason_text(raw.reason[first])
end

backend.on_no_time(function()
    return "fastclock: " .. no_source(backend.get_info())
end)

-- What was chosen and why, as things stand now. Chooses a source first, as a read does, if nothing
-- has been read yet. Returns a table:
--   source          the source chosen: kernel-page, timekeep, vdso, syscall, libc, or none
--   reason          why this source and no earlier one: a sentence for a person
--   serving         what answers an ordered read at this moment; differs from `source` while that
--                   one has to stand back
--   serving_reason  why it differs, or nil
--   coarse_serving  what answers a read of the coarse clocks at this moment
--   wanted          the source asked for by FASTCLOCK_SOURCE or select(); auto if none was
--   wanted_reason   why FASTCLOCK_SOURCE was not followed, or nil
--   reasons         for each source that is not in use, by name, why: a sentence
--   counter_hz      ticks a second; nil if that would have to be measured, see ticks_hz()
--   counter         whether the counter may be read
--   resolution_ns, coarse_resolution_ns  of the clocks; the coarse one is the kernel's tick
--   layout          name of the layout of the kernel's page, or nil if it was not recognised
--   mode            the kernel's clock mode as its page has it now (1: the counter), or nil
--   time_namespace  whether the process is in a time namespace, or nil if that is not known
--   tai_offset_s    seconds that tai is ahead of realtime; 0: most likely nobody told the kernel
--   proof_rounds    readings, each between two system calls, that the source in use has passed
--   slow_reads      reads that left the fast path since the process began
function fastclock.info()
    local raw = backend.get_info()
    local reasons = {}
    for number = KERNEL_PAGE, LIBC do
        if number ~= raw.source then
            reasons[source_name(number)] = reason_text(raw.reason[number])
        end
    end
    local info = {
        source = source_name(raw.source),
        reason = why(raw),
        serving = source_name(raw.serving),
        serving_reason = reason_or_nil(raw.serving_reason),
        coarse_serving = source_name(raw.coarse_serving),
        wanted = source_name(raw.wanted),
        wanted_reason = reason_or_nil(raw.wanted_reason),
        reasons = reasons,
        counter = raw.counter ~= 0,
        resolution_ns = raw.resolution_ns,
        coarse_resolution_ns = raw.coarse_resolution_ns,
        tai_offset_s = raw.tai_offset_s,
        proof_rounds = raw.proof_rounds,
        slow_reads = raw.slow_reads,
    }
    if raw.counter_hz ~= 0 then
        info.counter_hz = raw.counter_hz
    end
    if raw.layout ~= "" then
        info.layout = raw.layout
    end
    if raw.mode >= 0 then
        info.mode = raw.mode
    end
    if raw.time_namespace >= 0 then
        info.time_namespace = raw.time_namespace == 1
    end
    return info
end

-- Changes the source of the whole process, proving it anew; also the call to make after the process
-- was restored from a checkpoint. source: auto, kernel-page, timekeep, vdso, syscall or off (what
-- the C library does). Returns true; or nil and the reason, if the source was refused, and the
-- former choice stands. Any other name is an error.
function fastclock.select(source)
    if type(source) ~= "string" then
        local got = source == nil and "no value" or type(source)
        error("bad argument #1 to 'select' (string expected, got " .. got .. ")", 2)
    end
    local number = source_numbers[source]
    if not number then
        error(("bad argument #1 to 'select' (%q is none of %s)"):format(source, allowed_names), 2)
    end
    if backend.select(number) == 0 then
        return true
    end
    local raw = backend.get_info()
    local reason = number == AUTO and no_source(raw) or reason_text(raw.reason[number])
    return nil, source .. " was refused: " .. reason
end

return fastclock
