-- Compares as the engine orders members of equal score: byte by byte. (Lua's own `<` follows the locale.)
local function bytes_less(a, b)
  local size = math.min(#a, #b)
  for i = 1, size do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end
