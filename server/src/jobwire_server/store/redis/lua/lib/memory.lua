--- @include lib/keys
-- What a script does while the engine is full. The engine refuses a script's first write if that may need memory, and
-- none after it, so that without a word here a script would be refused or not by the accident of its first command.
local memory = {}

-- This script stores something new: refused while the engine is full, before it has written anything.
function memory.needed()
  redis.call("INCRBY", keys.seq, 0)
end

-- This script frees memory, or keeps a promise that was made: it goes on while the engine is full.
function memory.spared()
  redis.call("DEL", keys.spared)
end
