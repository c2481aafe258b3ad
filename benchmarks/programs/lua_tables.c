// A Lua script: sorts, joins and matches strings, fills tables, and calls closures and methods.
// Lua seeds its hashes by time and addresses, so what a method call costs is a matter of luck: there are few of them.
#include <stddef.h>
#include <stdio.h>

typedef struct lua_State lua_State;
lua_State *luaL_newstate(void);
void luaL_openlibs(lua_State *state);
int luaL_loadstring(lua_State *state, const char *script);
int lua_pcallk(lua_State *state, int arguments, int results, int handler, ptrdiff_t context, void *continuation);
const char *lua_tolstring(lua_State *state, int index, size_t *length);

static const char kScript[] =
    "local state = 7\n"
    "local function random(n) state = (state * 1103515245 + 12345) % 2147483648; return state % n + 1 end\n"
    "local names, counts = {}, {}\n"
    "for i = 1, 60000 do names[i] = 'name' .. random(5000) end\n"
    "table.sort(names)\n"
    "for _, name in ipairs(names) do counts[name] = (counts[name] or 0) + 1 end\n"
    "local joined = table.concat(names, ' ')\n"
    "local sum = 0\n"
    "for digits in joined:gmatch('name(%d+)') do sum = sum + tonumber(digits) end\n"
    "local Account = {}\n"
    "Account.__index = Account\n"
    "function Account.new(limit) return setmetatable({total = 0, limit = limit}, Account) end\n"
    "function Account:add(n) self.total = (self.total + n) % self.limit; return self end\n"
    "local account = Account.new(2000003)\n"
    "for i = 1, 50000 do account:add(i) end\n"
    "local function counter() local n = 0; return function() n = n + 1.5; return n end end\n"
    "local count = counter()\n"
    "for i = 1, 1500000 do count() end\n"
    "local sieve, primes = {}, 0\n"
    "for i = 2, 300000 do\n"
    "  if not sieve[i] then primes = primes + 1; for j = i * i, 300000, i do sieve[j] = true end end\n"
    "end\n"
    "return string.format('%d %d %d %.1f %d', sum, counts['name17'] or 0, account.total, count(), primes)\n";

int main(void) {
  lua_State *state = luaL_newstate();
  luaL_openlibs(state);
  const int failed = luaL_loadstring(state, kScript) || lua_pcallk(state, 0, 1, 0, 0, NULL);
  puts(lua_tolstring(state, -1, NULL));
  return failed;
}
