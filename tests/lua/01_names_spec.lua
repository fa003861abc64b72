-- The names of the module, and what they are.
local fastclock = require "fastclock"
local support = require "support"

local function names_of(clocks)
    local names = {}
    for name in pairs(clocks) do
        for _, form in ipairs { "", "_ns", "_pair" } do
            names[name .. form] = "function"
        end
    end
    return names
end

local function types_of(reads)
    local types = {}
    for name, value in pairs(reads) do
        types[name] = type(value)
    end
    return types
end

describe("the module", function()
    it("has every read in three forms, and nothing that is not documented", function()
        local expected = names_of(support.clocks)
        for _, name in ipairs {
            "vtime64", "ticks", "ticks_ordered", "ticks_hz", "ticks_to_ns", "getcpu", "info",
            "select",
        } do
            expected[name] = "function"
        end
        expected._VERSION = "string"
        expected.relaxed = "table"
        expected.lib = support.is_luajit and "userdata" or nil
        assert.are.same(expected, types_of(fastclock))
    end)

    it("has the relaxed reads under the same names in its table relaxed", function()
        assert.are.same(names_of(support.relaxed_clocks), types_of(fastclock.relaxed))
    end)

    it("tells the version of the library that it carries", function()
        local header = assert(io.open "include/fastclock.h")
        local text = header:read "*a"
        header:close()
        local version = ("fastclock %s.%s.%s"):format(
            text:match "VERSION_MAJOR (%d+)", text:match "VERSION_MINOR (%d+)",
            text:match "VERSION_PATCH (%d+)")
        assert.are.equal(version, fastclock._VERSION)
    end)

    it("is the one that was built for this interpreter", function()
        local backend = support.is_luajit and "fastclock.ffi" or "fastclock.core"
        local other = support.is_luajit and "fastclock.core" or "fastclock.ffi"
        assert.is_table(package.loaded[backend])
        assert.is_nil(package.loaded[other])
    end)

    it("can be dropped and loaded again, and reads kept from before still work", function()
        local output, code = support.child [[
            local kept = require("fastclock").monotonic_ns
            for name in pairs(package.loaded) do
                if name:match "^fastclock" then package.loaded[name] = nil end
            end
            collectgarbage() collectgarbage()
            local between = kept()
            local fastclock = require "fastclock"
            assert(kept ~= fastclock.monotonic_ns or not jit)
            assert(between <= fastclock.monotonic_ns() and fastclock.monotonic_ns() <= kept())
        ]]
        assert.are.equal("", output)
        assert.are.equal(0, code)
    end)
end)
