-- What info() tells, and how select() changes it.
local fastclock = require "fastclock"
local support = require "support"

local SOURCES = {
    ["kernel-page"] = true, timekeep = true, vdso = true, syscall = true, libc = true,
}

describe("info", function()
    it("has the fields that are documented, each of its type", function()
        local info = fastclock.info()
        for field, kind in pairs {
            source = "string", reason = "string", serving = "string", coarse_serving = "string",
            wanted = "string", reasons = "table", counter = "boolean", resolution_ns = "number",
            coarse_resolution_ns = "number", tai_offset_s = "number", proof_rounds = "number",
            slow_reads = "number",
        } do
            assert.are.equal(kind, type(info[field]), field)
        end
        for field, kind in pairs {
            serving_reason = "string", wanted_reason = "string", counter_hz = "number",
            layout = "string", mode = "number", time_namespace = "boolean",
        } do
            assert.is_true(info[field] == nil or type(info[field]) == kind, field)
        end
    end)

    it("names a source, and for each other one the reason", function()
        local info = fastclock.info()
        assert.is_true(SOURCES[info.source])
        for source in pairs(SOURCES) do
            assert.are.equal(source ~= info.source and "string" or "nil",
                type(info.reasons[source]), source)
        end
    end)

    it("tells the coarse resolution that the clock shows", function()
        -- Two ticks that follow each other are one resolution apart; a tick may be missed.
        local resolution_ns = fastclock.info().coarse_resolution_ns
        local smallest = math.huge
        local last = fastclock.monotonic_coarse_ns()
        local steps = 0
        while steps < 10 do
            local now = fastclock.monotonic_coarse_ns()
            if now ~= last then
                smallest = math.min(smallest, tonumber(now - last))
                steps = steps + 1
                last = now
            end
        end
        -- The rate of the clock is slewed by 500 parts in a million at most.
        assert.is_true(smallest >= resolution_ns * 0.99 and smallest <= resolution_ns * 10)
    end)

    it("tells the rate of the counter that ticks_hz tells", function()
        local hz = fastclock.ticks_hz()
        assert.are.equal(tonumber(hz), tonumber(fastclock.info().counter_hz))
    end)
end)

describe("select", function()
    for source, name in pairs {
        ["kernel-page"] = "kernel-page", vdso = "vdso", syscall = "syscall", off = "libc",
    } do
        it("of " .. source .. " makes it serve, and auto undoes it", function()
            local before = fastclock.info()
            assert.is_true(fastclock.select(source))
            local during = fastclock.info()
            assert.is_true(fastclock.select "auto")
            local after = fastclock.info()
            assert.are.equal(name, during.source)
            assert.are.equal(name, during.serving)
            assert.are.equal(name, during.wanted)
            assert.are.equal(before.source, after.source)
            assert.are.equal("auto", after.wanted)
        end)
    end

    it("returns nil and the reason for a refusal, and the former choice stands", function()
        -- A child whose counter is off: the kernel's page and the vDSO may not be used there.
        local output, code = support.child [[
            local probe = require "probe"
            local fastclock = require "fastclock"
            probe.disable_counter()
            assert(fastclock.select "syscall")
            print(fastclock.select "vdso")
            print(fastclock.info().source, fastclock.info().reasons.vdso)
        ]]
        assert.are.equal(0, code, output)
        local why = "prctl(PR_SET_TSC) forbids this process to read the counter"
        assert.are.equal(
            "nil\tvdso was refused: " .. why .. "\nsyscall\t" .. why .. "\n", output)
    end)
end)
