-- FASTCLOCK_SOURCE, in a process of its own.
local support = require "support"

local report = [[
    local fastclock = require "fastclock"
    fastclock.monotonic_ns()
    local info = fastclock.info()
    print(info.source, info.serving, info.wanted, tostring(info.wanted_reason))
]]

describe("FASTCLOCK_SOURCE", function()
    for value, source in pairs {
        ["kernel-page"] = "kernel-page", vdso = "vdso", syscall = "syscall", off = "libc",
    } do
        it(value .. " is what serves", function()
            local output, code = support.child(report, { FASTCLOCK_SOURCE = value })
            assert.are.equal(0, code, output)
            assert.are.equal(("%s\t%s\t%s\tnil\n"):format(source, source, source), output)
        end)
    end

    it("with another value changes nothing, and info tells why", function()
        local plain = support.child(report, { FASTCLOCK_SOURCE = "auto" })
        local output, code = support.child(report, { FASTCLOCK_SOURCE = "rdtsc" })
        assert.are.equal(0, code, output)
        local why = "FASTCLOCK_SOURCE must be auto, kernel-page, timekeep, vdso, syscall or off"
        assert.are.equal((plain:gsub("nil\n$", why .. "\n")), output)
    end)
end)
