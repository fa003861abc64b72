-- Bad arguments, and a process in which no source serves.
local fastclock = require "fastclock"
local support = require "support"

local function assert_error(pattern, ...)
    local succeeded, message = pcall(...)
    assert.is_false(succeeded)
    assert.is_truthy(tostring(message):find(pattern), tostring(message))
end

describe("select", function()
    it("names what it got and what is allowed", function()
        local allowed = "auto, kernel%-page, timekeep, vdso, syscall, off"
        assert_error("bad argument #1 to 'select' %(\"tsc\" is none of " .. allowed .. "%)",
            fastclock.select, "tsc")
        assert_error("\"\" is none of", fastclock.select, "")
        assert_error("\"libc\" is none of", fastclock.select, "libc")
        assert_error("\"none\" is none of", fastclock.select, "none")
    end)

    it("takes a string and nothing else", function()
        assert_error("string expected, got no value", fastclock.select)
        assert_error("string expected, got number", fastclock.select, 1)
        assert_error("string expected, got table", fastclock.select, {})
    end)

    it("leaves the choice alone when it raises an error", function()
        local before = fastclock.info()
        pcall(fastclock.select, "tsc")
        local after = fastclock.info()
        assert.are.equal(before.source, after.source)
        assert.are.equal(before.wanted, after.wanted)
    end)
end)

describe("ticks_to_ns", function()
    it("takes a whole number from 0 and nothing else", function()
        assert_error("bad argument #1 .*number expected, got no value", fastclock.ticks_to_ns)
        assert_error("number expected, got table", fastclock.ticks_to_ns, {})
        assert_error("number expected, got string", fastclock.ticks_to_ns, "many")
        assert_error("must not be negative", fastclock.ticks_to_ns, -1)
        assert_error("bad argument #1", fastclock.ticks_to_ns, 1.5)
        assert_error("bad argument #1", fastclock.ticks_to_ns, 0 / 0)
        assert_error("bad argument #1", fastclock.ticks_to_ns, 1 / 0)
        assert_error("bad argument #1", fastclock.ticks_to_ns, 2 ^ 63)
    end)

    it("gives 0 for 0", function()
        assert.is_true(fastclock.ticks_to_ns(0) == 0)
    end)

    if support.is_luajit then
        it("takes int64_t and uint64_t", function()
            local new = require("ffi").new
            local expected = fastclock.ticks_to_ns(1000000)
            assert.is_true(fastclock.ticks_to_ns(new("int64_t", 1000000)) == expected)
            assert.is_true(fastclock.ticks_to_ns(new("uint64_t", 1000000)) == expected)
            assert_error("must not be negative", fastclock.ticks_to_ns, new("int64_t", -1))
        end)
    end
end)

describe("where no source serves", function()
    -- A seccomp filter that answers EPERM to every clock call: nothing can be proved.
    local refused = [[
        local probe = require "probe"
        probe.refuse_clock_calls()
        local fastclock = require "fastclock"
    ]]

    it("every read raises an error that gives the reasons and the place of the call", function()
        local output, code = support.child(refused .. [[
            local function check(reads)
                for name in pairs(reads) do
                    local base = name:match "^(.*)_pair$"
                    for _, form in ipairs(base and { "", "_ns", "_pair" } or {}) do
                        local read = reads[base .. form]
                        local succeeded, message = pcall(function() local t = read() return t end)
                        assert(not succeeded, base .. form)
                        assert(message:find("fastclock: no source serves (", 1, true), message)
                        assert(message:find("syscall: the system call was ref", 1, true), message)
                        assert(message:find "^%S+:%d+: ", message)
                        print(base .. form)
                    end
                end
            end
            check(fastclock)
            check(fastclock.relaxed)
        ]])
        assert.are.equal(0, code, output)
        local count = select(2, output:gsub("\n", ""))
        assert.are.equal(3 * 9 + 3 * 5, count, output)
    end)

    it("info still tells, and select returns nil and the reasons", function()
        local output, code = support.child(refused .. [[
            local info = fastclock.info()
            print(info.source, info.serving)
            print(info.reason)
            print(fastclock.select "syscall")
        ]])
        assert.are.equal(0, code, output)
        local lines = {}
        for line in output:gmatch "[^\n]+" do
            lines[#lines + 1] = line
        end
        assert.are.equal("none\tnone", lines[1])
        assert.is_truthy(lines[2]:find "^no source serves %(.*syscall: the system call was refused")
        assert.are.equal("nil\tsyscall was refused: the system call was refused", lines[3])
    end)
end)
