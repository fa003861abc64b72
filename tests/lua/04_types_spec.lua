-- What a count, a float and a pair are under each interpreter, and how exact.
local fastclock = require "fastclock"
local support = require "support"

local function assert_count(value)
    if support.is_luajit then
        assert.is_true(require("ffi").istype("int64_t", value))
    elseif support.has_integers then
        assert.are.equal("integer", math.type(value))
    else
        assert.are.equal("number", type(value))
        assert.are.equal(value, math.floor(value))
    end
end

local function each_read(form, check)
    for name in pairs(support.clocks) do
        check(fastclock[name .. form], name)
    end
    for name in pairs(support.relaxed_clocks) do
        check(fastclock.relaxed[name .. form], name)
    end
end

-- Whether one of many readings is odd: it would never be if low bits were lost.
local function some_reading_is_odd(read)
    for _ = 1, 1000 do
        if read() % 2 == 1 then
            return true
        end
    end
    return false
end

describe("a count of nanoseconds", function()
    it("is an integer, an int64_t, or a whole number, by interpreter", function()
        each_read("_ns", function(read)
            assert_count(read())
        end)
        assert_count(fastclock.vtime64())
        assert_count(fastclock.ticks())
        assert_count(fastclock.ticks_ordered())
        assert_count(fastclock.ticks_hz())
        assert_count(fastclock.ticks_to_ns(1000))
    end)

    it("can be subtracted from an earlier one and gives what is below zero", function()
        local first = fastclock.monotonic_ns()
        local second
        repeat
            second = fastclock.monotonic_ns()
        until second > first
        assert.is_true(first - second < 0)
        assert.is_true(tonumber(first - second) < 0)
    end)

    it("of monotonic is exact to the nanosecond", function()
        assert.is_true(some_reading_is_odd(fastclock.monotonic_ns))
    end)

    if support.counts_are_exact then
        it("of realtime is exact to the nanosecond", function()
            assert.is_true(some_reading_is_odd(fastclock.realtime_ns))
        end)
    else
        it("of realtime is the double nearest to the exact pair", function()
            -- A double of this size is a multiple of 256. Both sides of the comparison below stay
            -- exact: whole seconds are multiples of 512 ns, and the rest is small.
            local void = 0
            for _ = 1, 10000 do
                local seconds0, ns0 = fastclock.realtime_pair()
                local count = fastclock.realtime_ns()
                local seconds1, ns1 = fastclock.realtime_pair()
                local rest = count - seconds0 * 1e9
                if seconds1 ~= seconds0 then
                    void = void + 1
                else
                    assert.are.equal(0, count % 256)
                    assert.is_true(ns0 - 128 <= rest and rest <= ns1 + 128)
                end
            end
            assert.is_true(void < 100)
        end)
    end
end)

describe("seconds", function()
    it("are a float", function()
        each_read("", function(read)
            local value = read()
            assert.are.equal("number", type(value))
            if support.has_integers then
                assert.are.equal("float", math.type(value))
            end
        end)
    end)

    it("agree with the count, to the precision of a double", function()
        local function seconds(ns)
            return tonumber(ns) / 1e9
        end
        local function check(reads, name)
            local before = seconds(reads[name .. "_ns"]())
            local between = reads[name]()
            local after = seconds(reads[name .. "_ns"]())
            -- Only a clock that was set goes back from one reading to the next.
            return after >= before and (between < before or between > after)
        end
        local outside = 0
        for _ = 1, 1000 do
            for name in pairs(support.clocks) do
                outside = outside + (check(fastclock, name) and 1 or 0)
            end
        end
        assert.are.equal(0, outside)
    end)
end)

describe("a pair", function()
    it("is of two whole numbers, the second below a thousand million", function()
        each_read("_pair", function(read)
            local seconds, ns = read()
            for _, value in ipairs { seconds, ns } do
                assert.are.equal("number", type(value))
                if support.has_integers then
                    assert.are.equal("integer", math.type(value))
                end
                assert.are.equal(value, math.floor(value))
            end
            assert.is_true(seconds > 0 and ns >= 0 and ns < 1e9)
            assert.are.equal(2, select("#", read()))
        end)
    end)
end)

describe("ticks", function()
    it("run at the rate that ticks_hz tells, against raw_ns", function()
        local ns0, ticks0 = fastclock.raw_ns(), fastclock.ticks_ordered()
        local ns1, ticks1
        repeat
            ns1, ticks1 = fastclock.raw_ns(), fastclock.ticks_ordered()
        until ns1 - ns0 >= 20000000
        local ns = tonumber(fastclock.ticks_to_ns(ticks1 - ticks0))
        local by_rate = tonumber(ticks1 - ticks0) / tonumber(fastclock.ticks_hz()) * 1e9
        assert.is_true(math.abs(by_rate - ns) <= 1 + ns * 1e-8)
        -- The two clocks are read one after the other; an interruption in between counts as error.
        assert.is_true(ns <= 2 * tonumber(ns1 - ns0) and 2 * ns >= tonumber(ns1 - ns0))
    end)
end)

describe("getcpu", function()
    it("names a processor that this thread may run on", function()
        local status = assert(io.open "/proc/self/status")
        local allowed = status:read("*a"):match "Cpus_allowed_list:%s*(%S+)"
        status:close()
        local cpu, node = fastclock.getcpu()
        local found = false
        for range in allowed:gmatch "[^,]+" do
            local first = tonumber(range:match "^%d+")
            local last = tonumber(range:match "%d+$")
            found = found or cpu >= first and cpu <= last
        end
        assert.is_true(found)
        assert.are.equal("number", type(node))
    end)
end)
