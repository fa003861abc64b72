-- LuaJIT and 5.1 to 5.4 at once. 581 would replace `not (x >= y)`, which also refuses NaN.
std = "max"
ignore = { "581" }
files["tests/lua/*_spec.lua"].std = "max+busted"
