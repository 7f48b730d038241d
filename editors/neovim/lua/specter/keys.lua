--- Keys in Insert mode. Without a suggestion each does what it did before.
local accept = require('specter.accept')
local config = require('specter.config')
local macro = require('specter.macro')
local request = require('specter.request')

local M = {}

local INSERT = '<Plug>(specter-insert)'
local chunk ---@type string? what INSERT is about to insert

--- Put keys before those that wait to be read.
---@param keys string
local function feed(keys)
  vim.api.nvim_feedkeys(vim.keycode(keys), 'im', false)
end

--- Accept, or press `fallback`. Never from a mapping with `expr`: Neovim evaluates those while it looks ahead, before
--- the keys in front of them are in the buffer.
---@param part specter.Part
---@param fallback? string
local function press(part, fallback)
  local outcome = macro.replayed()
  if outcome == nil then
    local text = request.text()
    outcome = text and accept.chunk(text, part) or false
    macro.note(outcome)
  end
  chunk = outcome or nil
  if chunk then
    feed(INSERT)
  elseif fallback then
    feed(fallback)
  end
end

--- What INSERT does.
function M.insert()
  if chunk then
    accept.insert(chunk, request.accepting(chunk))
    request.refresh()
  end
  chunk = nil
end

local function cycle(step)
  return function()
    request.cycle(step)
  end
end

---@param key string
---@param run string|function
local function plug(key, run)
  vim.keymap.set('i', ('<Plug>(specter-%s)'):format(key), run, { silent = true })
end

--- The <Plug> keys, for mappings of one's own.
function M.plugs()
  -- The undo breaks make what was accepted one step of its own.
  plug('insert', '<C-g>u<Cmd>lua require("specter.keys").insert()<CR><C-g>u')
  for part, name in pairs({ all = 'accept', word = 'accept-word', line = 'accept-line' }) do
    plug(name, function()
      press(part)
    end)
  end
  plug('next', cycle(1))
  plug('previous', cycle(-1))
  plug('dismiss', request.dismiss)
  plug('trigger', request.trigger)
end

--- What a key did before us, under a name that can be put back into the typed keys.
---@param key string
---@return string
local function fallback(key)
  local name = ('<Plug>(specter-else-%s)'):format((key:gsub('[<>]', '')))
  local before = vim.fn.maparg(key, 'i', false, true)
  if next(before) and before.buffer == 0 then
    if not (before.rhs or ''):find('specter-', 1, true) and before.desc ~= M.DESCRIPTION then
      before.lhs, before.lhsraw, before.lhsrawalt = name, vim.keycode(name), nil
      vim.fn.mapset('i', false, before)
    end
  elseif key:match('^<[MA]%-') then
    vim.keymap.set('i', name, '<Nop>') -- Neovim reads <M-w> as <Esc>w, which nobody wants after the last word
  else
    vim.keymap.set('i', name, key)
  end
  return name
end

M.DESCRIPTION = 'Specter'

--- Map the keys of the configuration.
function M.map()
  local keys = config.options.keys
  local function map(key, run)
    if key then
      vim.keymap.set('i', key, run, { silent = true, desc = M.DESCRIPTION })
    end
  end
  for name, part in pairs({ accept = 'all', accept_word = 'word', accept_line = 'line' }) do
    local before = keys[name] and fallback(keys[name])
    map(keys[name], function()
      press(part, before)
    end)
  end
  local before = keys.dismiss and fallback(keys.dismiss)
  map(keys.dismiss, function()
    if not request.dismiss() then
      feed(before)
    end
  end)
  map(keys.next, cycle(1))
  map(keys.previous, cycle(-1))
end

return M
