-- LuaJIT compiles loops of reads, whatever the source: no trace is given up.
local support = require "support"

if not support.is_luajit then
    return
end

-- Runs a loop over each of `bodies`, Lua texts, in a process of its own, and counts for each the
-- traces that were finished and those that were given up.
local function traces_of(bodies, environment)
    local output, code = support.child(([[
        local fastclock = require "fastclock"
        local finished, given_up
        jit.attach(function(what)
            finished = finished + (what == "stop" and 1 or 0)
            given_up = given_up + (what == "abort" and 1 or 0)
        end, "trace")
        for body in ([==[%s]==]):gmatch "[^\n]+" do
            local text = "local fastclock, last = ... for _ = 1, 2000 do " .. body .. " end"
            finished, given_up = 0, 0
            assert(loadstring(text))(fastclock)
            print(finished, given_up, body)
        end
    ]]):format(table.concat(bodies, "\n")), environment)
    assert.are.equal(0, code, output)
    local traces = {}
    for finished, given_up, body in output:gmatch "(%d+)\t(%d+)\t([^\n]+)" do
        traces[#traces + 1] = {
            body = body, finished = tonumber(finished), given_up = tonumber(given_up),
        }
    end
    assert.are.equal(#bodies, #traces)
    return traces
end

local function assert_compiled(bodies, environment)
    for _, trace in ipairs(traces_of(bodies, environment)) do
        assert.are.equal(0, trace.given_up, trace.body)
        assert.is_true(trace.finished > 0, trace.body)
    end
end

describe("a hot loop", function()
    it("that cannot be compiled is seen as such by this spec", function()
        local trace = traces_of({ "last = function() end" })[1]
        assert.is_true(trace.given_up > 0)
    end)

    for _, source in ipairs { "kernel-page", "vdso", "syscall", "off" } do
        for _, clocks in ipairs { "clocks", "relaxed_clocks" } do
            it(("over any of %s is compiled with source %s"):format(clocks, source), function()
                local bodies = {}
                for _, name in ipairs(support.sorted(support[clocks])) do
                    for _, form in ipairs { "", "_ns", "_pair" } do
                        bodies[#bodies + 1] = ("last = fastclock.%s%s%s()"):format(
                            clocks == "clocks" and "" or "relaxed.", name, form)
                    end
                end
                assert_compiled(bodies, { FASTCLOCK_SOURCE = source })
            end)
        end
    end

    it("that takes differences of stamps is compiled", function()
        assert_compiled {
            "local t = fastclock.monotonic_ns() last = tonumber(fastclock.monotonic_ns() - t)",
            "local t = fastclock.monotonic_ns() if last and t < last then error() end last = t",
        }
    end)

    it("over the counter is compiled", function()
        assert_compiled { "last = fastclock.ticks()", "last = fastclock.ticks_to_ns(100)" }
    end)
end)
