--- The plugin's options. What the server can be told stands in `settings` and is checked there, not here.
local M = {}

---@class specter.Keys
---@field accept? string|false the whole suggestion; without one, what the key did before
---@field accept_word? string|false
---@field accept_line? string|false
---@field next? string|false
---@field previous? string|false
---@field dismiss? string|false

---@class specter.Config
---@field cmd string[]|fun(dispatchers: vim.lsp.rpc.Dispatchers): vim.lsp.rpc.PublicClient starts the server, or connects
---@field settings table<string, any> `specter.*`, as in the server's manual
---@field keys specter.Keys
---@field max_file_size integer bytes; a larger file is left alone
---@field start_timeout_ms integer how long the server may take to answer at all
local defaults = {
  cmd = { 'specter', 'serve' },
  settings = {},
  keys = {
    accept = '<Tab>',
    accept_word = '<M-w>',
    accept_line = '<M-l>',
    next = '<M-]>',
    previous = '<M-[>',
    dismiss = '<M-e>',
  },
  max_file_size = 2 * 1024 * 1024,
  start_timeout_ms = 20000,
}

---@type specter.Config
M.options = vim.deepcopy(defaults)

---@param name string the option, as the user wrote it
---@param value any
---@param default any
---@return string? problem
local function problem(name, value, default)
  if default == nil then
    return ('there is no option `%s`; see :help specter-options'):format(name)
  end
  local connects = name == 'cmd' and type(value) == 'function'
  if type(value) ~= type(default) and not connects and not (value == false and type(default) == 'string') then
    return ('option `%s`: expected a %s, got a %s'):format(name, type(default), type(value))
  end
end

---@param given table
---@param known table
---@param path string
---@param problems string[]
---@return table
local function merged(given, known, path, problems)
  local result = vim.deepcopy(known)
  for key, value in pairs(given) do
    local fault = problem(path .. tostring(key), value, known[key])
    if fault then
      table.insert(problems, fault)
    elseif key == 'keys' then
      result.keys = merged(value, known.keys, 'keys.', problems)
    else
      result[key] = value
    end
  end
  return result
end

--- Take the user's options; what cannot be used is reported and left at its default.
---@param given? table
---@return string[] problems
function M.set(given)
  local problems = {}
  M.options = merged(given or {}, defaults, '', problems)
  return problems
end

--- The server, for a message: by the command that starts it, if there is one.
---@return string
function M.server()
  local command = M.options.cmd
  return type(command) == 'table' and ('`%s`'):format(table.concat(command, ' ')) or 'the server that `cmd` connects to'
end

return M
