--- Specter: ghost text from a local language server. `require('specter').setup{}` starts it; see `:help specter`.
local client = require('specter.client')
local config = require('specter.config')
local ghost = require('specter.ghost')
local keys = require('specter.keys')
local macro = require('specter.macro')
local request = require('specter.request')

local M = {}

local api = vim.api

---@param before specter.Status
local function status_changed(before)
  if before.state ~= 'ready' and before.state ~= 'busy' and client.status.state == 'ready' then
    request.clear()
    request.refresh() -- what was asked for while the models loaded got no answer
  elseif client.status.state == 'error' then
    request.clear()
  end
  local shown = before.state ~= client.status.state and not vim.tbl_contains({ 'ready', 'busy' }, client.status.state)
  if shown or before.state == 'loading' or before.state == 'error' then
    vim.cmd.redrawstatus({ bang = true })
  end
  api.nvim_exec_autocmds('User', { pattern = 'SpecterStatus', modeline = false })
end

---@param events string|string[]
---@param run fun(event: table)
---@param pattern? string|string[]
local function on(events, run, pattern)
  api.nvim_create_autocmd(events, {
    group = api.nvim_create_augroup('specter', { clear = false }),
    pattern = pattern,
    callback = function(event)
      run(event) -- whose result would delete the autocommand
    end,
  })
end

local function watch()
  api.nvim_create_augroup('specter', { clear = true })
  local function attach(event)
    client.attach(event.buf)
  end
  on({ 'BufEnter', 'BufFilePost', 'BufWritePost', 'FileType' }, attach)
  on('ModeChanged', attach, '[^i]*:i*')
  on({ 'CursorMovedI', 'TextChangedI', 'TextChangedP', 'CompleteDone' }, request.refresh)
  on('CompleteChanged', vim.schedule_wrap(request.refresh)) -- the menu is not yet what it will be
  on('ModeChanged', request.clear, 'i*:[^i]*')
  on('ModeChanged', vim.schedule_wrap(request.refresh), '[^i]*:i*') -- after CTRL-O the cursor has not moved yet
  on({ 'BufLeave', 'WinLeave' }, request.clear)
  on('LspAttach', request.refresh)
  on('ColorScheme', ghost.highlights)
  on('RecordingEnter', macro.began)
  on('RecordingLeave', function()
    macro.ended(vim.v.event.regname)
  end)
end

--- Two ghost texts in one place help nobody: the one Neovim 0.12 draws by itself stays off for this server.
local function only_ours()
  if vim.lsp.inline_completion then
    on('LspAttach', function(event)
      local attached = vim.lsp.get_client_by_id(event.data.client_id)
      if attached and attached.name == 'specter' then
        vim.lsp.inline_completion.enable(false, { client_id = attached.id })
      end
    end)
  end
end

---@param options? table see `:help specter-options`
function M.setup(options)
  if vim.fn.has('nvim-0.10') == 0 then
    return client.notify('Neovim 0.10 or later is needed', vim.log.levels.ERROR)
  end
  for _, problem in ipairs(config.set(options)) do
    client.notify(problem, vim.log.levels.WARN)
  end
  require('specter.commands').create()
  keys.plugs()
  keys.map()
  ghost.highlights()
  client.on_status = status_changed
  watch()
  only_ours()
  client.attach_all()
end

--- Whether a suggestion is on screen.
---@return boolean
function M.visible()
  return request.text() ~= nil
end

---@param name string
---@return fun(): boolean
local function feeder(name)
  return function()
    local shown = M.visible()
    if shown then
      api.nvim_feedkeys(vim.keycode(('<Plug>(specter-%s)'):format(name)), 'im', false)
    end
    return shown
  end
end

-- For mappings of one's own; each says whether there was a suggestion.
M.accept = feeder('accept')
M.accept_word = feeder('accept-word')
M.accept_line = feeder('accept-line')
M.dismiss = request.dismiss
M.trigger = request.trigger

function M.statusline()
  return require('specter.statusline').text()
end

return M
