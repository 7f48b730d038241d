--- A Neovim of its own for each test, with a screen that can be read.
local M = {}

local here = vim.fn.fnamemodify(debug.getinfo(1, 'S').source:sub(2), ':p:h')
local plugin = vim.fn.fnamemodify(here .. '/../../../editors/neovim', ':p')
local nvim = vim.env.NVIM or vim.v.progpath

---@class Child
---@field job integer
local Child = {}
Child.__index = Child

---@param options? {columns?: integer, lines?: integer}
---@return Child
function M.start(options)
  options = options or {}
  local command = { nvim, '--embed', '--headless', '-u', 'NONE', '-i', 'NONE', '-n' }
  local self = setmetatable({ job = vim.fn.jobstart(command, { rpc = true }) }, Child)
  vim.rpcrequest(self.job, 'nvim_ui_attach', options.columns or 60, options.lines or 12, {})
  self:lua(
    [[
    local plugin, tests = ...
    vim.opt.runtimepath:prepend(plugin)
    package.path = tests .. '/?.lua;' .. package.path
    vim.o.shortmess = vim.o.shortmess .. 'Ic'
    vim.o.ruler, vim.o.showcmd, vim.o.showmode, vim.o.laststatus = false, false, false, 0
    vim.o.fillchars = 'eob: '
    vim.o.hidden = true
    notices = {}
    vim.notify = function(message, level) table.insert(notices, message) end
    vim.cmd.runtime('plugin/specter.lua')
  ]],
    plugin,
    here
  )
  return self
end

--- End it, and wait for that: while it takes leave of a server, that has a client more than the next test expects.
function Child:stop()
  vim.fn.jobstop(self.job)
  vim.fn.jobwait({ self.job }, 5000)
end

--- Run Lua code in it.
function Child:lua(code, ...)
  return vim.rpcrequest(self.job, 'nvim_exec_lua', code, { ... })
end

--- Press keys, and wait until they have had their effect.
function Child:type(keys)
  vim.rpcrequest(self.job, 'nvim_input', keys)
  for _ = 1, 3 do
    vim.wait(10)
    vim.rpcrequest(self.job, 'nvim_get_mode')
  end
end

--- One character after the other, as a person would.
function Child:type_slowly(text)
  for _, key in ipairs(vim.fn.split(text, '\\zs')) do
    self:type(key == '<' and '<lt>' or key == '\n' and '<CR>' or key)
  end
end

---@return string[]
function Child:lines()
  return vim.rpcrequest(self.job, 'nvim_buf_get_lines', 0, 0, -1, false)
end

--- The rows of the screen without what is empty at their ends.
---@return string[]
function Child:screen()
  local rows = self:lua([[
    vim.cmd.redraw()
    local rows = {}
    for row = 1, vim.o.lines do
      local cells = {}
      for column = 1, vim.o.columns do
        cells[column] = vim.fn.screenstring(row, column)
      end
      rows[row] = table.concat(cells):gsub('%s+$', '')
    end
    return rows
  ]])
  while rows[#rows] == '' do
    table.remove(rows)
  end
  return rows
end

---@return integer row, integer column from 1
function Child:screen_cursor()
  return unpack(self:lua('vim.cmd.redraw() return { vim.fn.screenrow(), vim.fn.screencol() }'))
end

--- Open a file with these lines.
---@param lines string[]
---@param name? string
function Child:edit(lines, name)
  self.files = (self.files or 0) + 1
  self:lua(
    [[
    local name, lines = ...
    vim.cmd.edit(vim.fn.tempname() .. name)
    vim.api.nvim_buf_set_lines(0, 0, -1, false, lines)
    vim.bo.modified = false
  ]],
    name or ('-' .. self.files .. '.py'),
    lines
  )
end

--- Wait until `condition` returns something, and return that.
function M.eventually(condition, what, timeout)
  local result
  local met = vim.wait(timeout or 3000, function()
    result = condition()
    return result
  end, 10)
  if not met then
    error('never came: ' .. (what or 'the condition'), 2)
  end
  return result
end

--- Set the plugin up with the scripted server, and open a file with these lines.
---@param nvim Child
---@param lines string[]
---@param options? table of setup()
function M.fake(nvim, lines, options)
  nvim:lua([[Fake = require('fake_server') Fake.install(...)]], options or vim.empty_dict())
  nvim:edit(lines)
  M.eventually(function()
    return nvim:lua([[return Fake.count('textDocument/didOpen') > 0]])
  end, 'didOpen')
end

--- Have the scripted server answer its latest request with these texts.
function M.answer(nvim, ...)
  nvim:lua([[Fake.answer(...)]], ...)
  nvim:type('')
end

---@return integer how many inline completions were asked for
function M.requests(nvim)
  return nvim:lua([[return Fake.count('textDocument/inlineCompletion')]])
end

function Child:messages()
  return self:lua('return notices')
end

--- Wait for a message to the user that contains `text`.
function Child:message(text, timeout)
  return M.eventually(function()
    for _, message in ipairs(self:messages()) do
      if message:find(text, 1, true) then
        return message
      end
    end
  end, ('the message "%s" among %s'):format(text, vim.inspect(self:messages())), timeout)
end

return M
