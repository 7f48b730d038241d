--- Runs specs: nvim --headless -u NONE -i NONE -n -l run.lua SPEC…   One line for each test; exit code 1 if one failed.
local here = vim.fn.fnamemodify(debug.getinfo(1, 'S').source:sub(2), ':p:h')
package.path = here .. '/?.lua;' .. package.path

local child = require('child')
local failed, passed = 0, 0

---@param what string
---@param got any
---@param wanted any
function _G.equal(got, wanted, what)
  if not vim.deep_equal(got, wanted) then
    error(('%s\n  got    %s\n  wanted %s'):format(what or 'not equal', vim.inspect(got), vim.inspect(wanted)), 2)
  end
end

_G.eventually = child.eventually

---@param name string
---@param run fun(nvim: Child)
---@param options? table of the child
function _G.test(name, run, options)
  if vim.env.ONLY and not name:find(vim.env.ONLY, 1, true) then
    return
  end
  local nvim = child.start(options)
  local ok, fault = xpcall(run, function(message)
    return tostring(message) .. '\n' .. debug.traceback('', 2)
  end, nvim)
  if ok then
    passed = passed + 1
    io.stdout:write('ok      ', name, '\n')
  else
    failed = failed + 1
    local alive, screen = pcall(nvim.screen, nvim)
    io.stdout:write('FAILED  ', name, '\n', fault, '\n', alive and table.concat(screen, '\n') or '(it has ended)', '\n')
  end
  nvim:stop()
end

local last = {} ---@type fun()[]

--- Have something done after all tests.
---@param clean_up fun()
function _G.finally(clean_up)
  table.insert(last, clean_up)
end

for _, spec in ipairs(_G.arg) do
  dofile(spec)
end
for _, clean_up in ipairs(last) do
  clean_up()
end
io.stdout:write(('%d passed, %d failed, %s\n'):format(passed, failed, tostring(vim.version())))
os.exit(failed == 0 and passed > 0 and 0 or 1)
