-- Clocks that are never set never go back.
local fastclock = require "fastclock"

local READS = 1000000

describe("successive readings", function()
    for _, name in ipairs { "monotonic_ns", "raw_ns", "boottime_ns", "monotonic" } do
        it("of " .. name .. " never go back, a million of them", function()
            local read = fastclock[name]
            local last, back = read(), 0
            for _ = 1, READS do
                local now = read()
                if now < last then
                    back = back + 1
                end
                last = now
            end
            assert.are.equal(0, back)
        end)
    end

    it("of monotonic_ns move on", function()
        local first = fastclock.monotonic_ns()
        local last
        for _ = 1, 1000 do
            last = fastclock.monotonic_ns()
        end
        assert.is_true(last > first)
    end)

    it("of ticks_ordered never go back, a million of them", function()
        local read = fastclock.ticks_ordered
        local last, back = read(), 0
        for _ = 1, READS do
            local now = read()
            if now < last then
                back = back + 1
            end
            last = now
        end
        assert.are.equal(0, back)
    end)

    it("keep their order across coroutines", function()
        local reader = coroutine.wrap(function()
            while true do
                coroutine.yield(fastclock.monotonic_ns())
            end
        end)
        local back = 0
        for _ = 1, 10000 do
            local outer = fastclock.monotonic_ns()
            if reader() < outer then
                back = back + 1
            end
        end
        assert.are.equal(0, back)
    end)
end)
