-- Every reading lies between two readings of the same clock by raw system call.
local fastclock = require "fastclock"
local probe = require "probe"
local support = require "support"

local ROUNDS = 100000
local ROUNDS_PER_SOURCE = 5000

local function bracket_ns(read, clock, rounds)
    local function kernel()
        return support.syscall_ns(clock)
    end
    local outside, void = support.bracket(read, kernel, rounds)
    assert.are.equal(0, outside)
    assert.is_true(void < rounds / 2)
end

describe("a reading", function()
    for _, name in ipairs(support.sorted(support.clocks)) do
        it("of " .. name .. "_ns lies between two system calls", function()
            bracket_ns(fastclock[name .. "_ns"], support.clocks[name], ROUNDS)
        end)
    end

    for _, name in ipairs(support.sorted(support.relaxed_clocks)) do
        it("of relaxed." .. name .. "_ns lies between two system calls", function()
            bracket_ns(fastclock.relaxed[name .. "_ns"], support.relaxed_clocks[name], ROUNDS)
        end)
    end

    it("of vtime64 is one of realtime", function()
        bracket_ns(fastclock.vtime64, 0, ROUNDS)
    end)

    for _, source in ipairs { "kernel-page", "vdso", "syscall", "off" } do
        it("lies between two system calls when the source is " .. source, function()
            assert(fastclock.select(source))
            finally(function()
                assert(fastclock.select "auto")
            end)
            for _, name in ipairs(support.sorted(support.clocks)) do
                bracket_ns(fastclock[name .. "_ns"], support.clocks[name], ROUNDS_PER_SOURCE)
            end
        end)
    end
end)

describe("a pair", function()
    -- Compared as pairs: exact where a single number would not be.
    local function later(seconds, ns, than_seconds, than_ns)
        return seconds > than_seconds or seconds == than_seconds and ns > than_ns
    end

    for _, reads in ipairs { "clocks", "relaxed_clocks" } do
        local from = reads == "clocks" and fastclock or fastclock.relaxed
        for _, name in ipairs(support.sorted(support[reads])) do
            it(("of %s (%s) lies between two system calls"):format(name, reads), function()
                local read, clock = from[name .. "_pair"], support[reads][name]
                local outside, void = 0, 0
                for _ = 1, ROUNDS_PER_SOURCE do
                    local seconds0, ns0 = probe.syscall_pair(clock)
                    local seconds, ns = read()
                    local seconds1, ns1 = probe.syscall_pair(clock)
                    if later(seconds0, ns0, seconds1, ns1) then
                        void = void + 1
                    elseif later(seconds0, ns0, seconds, ns)
                        or later(seconds, ns, seconds1, ns1) then
                        outside = outside + 1
                    end
                end
                assert.are.equal(0, outside)
                assert.is_true(void < ROUNDS_PER_SOURCE / 2)
            end)
        end
    end
end)
