-- The library in the C module: which of its names are visible, and that there is one copy of it.
local support = require "support"

local function read_file(name)
    local file = assert(io.open(name))
    local text = file:read "*a"
    file:close()
    return text
end

local function output_of(command)
    local pipe = assert(io.popen(command))
    local text = pipe:read "*a"
    pipe:close()
    return text
end

describe("the C module", function()
    it("shows the names of the library's version script and its own entry, and no other", function()
        local expected = { luaopen_fastclock_core = true }
        for names in read_file("core/fastclock.map"):gmatch "global:(.-)local:" do
            for name in names:gmatch "[%w_]+" do
                expected[name] = true
            end
        end
        local shown = {}
        local listing = output_of("nm -D --defined-only " .. support.c_module)
        for name in listing:gmatch "%x+ %a ([%w_]+)" do
            shown[name] = true
        end
        -- These are there only where the C library knows two widths of time_t, on 32 bits.
        for name in pairs(expected) do
            if name:match "_time64$" then expected[name] = shown[name] end
        end
        -- What is shown beyond this belongs between `#pragma GCC visibility push(hidden)` and pop
        -- in its header.
        assert.are.same(expected, shown)
    end)

    it("is made from the files that CMakeLists.txt lists", function()
        local rockspec, cmake = {}, {}
        for file in read_file("fastclock-scm-1.rockspec"):gmatch '"(core/[%w_/]+%.c)"' do
            rockspec[file] = true
        end
        local list = read_file("CMakeLists.txt"):match "add_library%(fastclock_objects OBJECT(.-)%)"
        for file in list:gmatch "core/[%w_/]+%.c" do
            cmake[file] = true
        end
        assert.are.same(cmake, rockspec)
    end)

    it("binds every name of the library to its own copy, whatever else is in the process", function()
        local count = 0
        for line in output_of("readelf --dyn-syms --wide " .. support.c_module):gmatch "[^\n]+" do
            local visibility, section, name = line:match " (%u+)%s+(%w+) ([%w_]+)$"
            if name and section ~= "UND" and (name:match "^fc_" or name == "vtime64") then
                assert.are.equal("PROTECTED", visibility, name)
                count = count + 1
            end
        end
        assert.is_true(count > 20)
    end)

    it("works beside another copy whose names come first", function()
        -- Another Lua's C module, preloaded.
        local other = support.lua_version == "5.2" and "5.3" or "5.2"
        local preloaded = ("build/lua/%s/lib/lua/%s/fastclock/core.so"):format(other, other)
        local output, code = support.child([[
            local fastclock = require "fastclock"
            for _, source in ipairs { "syscall", "vdso", "kernel-page" } do
                assert(fastclock.select(source))
                assert(fastclock.info().serving == source)
                assert(fastclock.monotonic_ns() <= fastclock.monotonic_ns())
                assert(fastclock.monotonic_pair())
            end
            assert(fastclock.select "syscall")
            if jit then -- the other copy has made no such choice
                local ffi = require "ffi"
                local info = ffi.new "struct fc_info"
                ffi.C.fc_get_info(info, ffi.sizeof(info))
                print(ffi.string(ffi.C.fc_source_name(info.wanted)))
            end
        ]], { LD_PRELOAD = preloaded })
        assert.are.equal(support.is_luajit and "auto\n" or "", output)
        assert.are.equal(0, code)
    end)
end)

if support.is_luajit then
    describe("under LuaJIT", function()
        it("the FFI and the C module share one copy of the library", function()
            local output, code = support.child [[
                local fastclock = require "fastclock"
                local core = require "fastclock.core"
                assert(fastclock.select "syscall")
                print(core.source_name(core.get_info().source))
                core.select(3)
                print(fastclock.info().serving)
            ]]
            assert.are.equal("syscall\nvdso\n", output)
            assert.are.equal(0, code)
        end)

        -- A folder with the Lua files, the header, and whatever `libraries` names.
        local function folder_with(libraries)
            local folder = output_of("mktemp -d"):gsub("\n", "")
            local commands = { ("cp -r %s/fastclock %s/fastclock.lua %s/"):format(
                support.lua_modules, support.lua_modules, folder) }
            for _, library in ipairs(libraries) do
                commands[#commands + 1] = ("cp %s %s/%s"):format(support.c_module, folder, library)
            end
            assert.are.equal("", output_of(table.concat(commands, " && ") .. " 2>&1"))
            finally(function()
                os.execute("rm -r " .. folder)
            end)
            return folder
        end

        local read = [[
            local fastclock = require "fastclock"
            assert(fastclock.monotonic_ns() <= fastclock.monotonic_ns())
            print(package.searchpath("fastclock.core", package.cpath))
        ]]

        local function child_in(folder, more)
            local environment = { LUA_PATH = folder .. "/?.lua", LUA_CPATH = "/nowhere/?.so" }
            for name, value in pairs(more or {}) do
                environment[name] = value
            end
            return support.child(read, environment)
        end

        it("libfastclock.so beside the module is found", function()
            local output, code = child_in(folder_with { "libfastclock.so" })
            assert.are.equal(0, code, output)
            assert.is_truthy(output:find "^nil")
        end)

        it("libfastclock.so beside ffi.lua is found", function()
            local output, code = child_in(folder_with { "fastclock/libfastclock.so" })
            assert.are.equal(0, code, output)
        end)

        it("libfastclock.so is found where the system looks", function()
            local elsewhere = folder_with { "libfastclock.so" }
            local output, code = child_in(folder_with {}, { LD_LIBRARY_PATH = elsewhere })
            assert.are.equal(0, code, output)
        end)

        it("a library that is nowhere is an error that says so", function()
            local output, code = child_in(folder_with {})
            assert.are.equal(1, code)
            assert.is_truthy(output:find "found neither its C module nor libfastclock.so")
        end)

        it("declarations that are missing are an error that says so", function()
            local folder = folder_with { "libfastclock.so" }
            assert(os.remove(folder .. "/fastclock/abi.h"))
            local output, code = child_in(folder)
            assert.are.equal(1, code)
            assert.is_truthy(output:find "declarations are missing from beside ffi.lua: .*abi.h")
        end)
    end)
end
