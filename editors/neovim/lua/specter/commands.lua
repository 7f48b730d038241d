--- `:Specter WORD`.
local client = require('specter.client')
local config = require('specter.config')
local request = require('specter.request')

local M = {}

local api = vim.api

--- Show lines in a window of their own, which `q` closes.
---@param name string
---@param lines string[]
---@param filetype? string
local function show(name, lines, filetype)
  local buf = api.nvim_create_buf(false, true)
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  vim.cmd(('botright %dsplit'):format(math.min(#lines + 1, math.floor(vim.o.lines / 2))))
  api.nvim_win_set_buf(0, buf)
  pcall(api.nvim_buf_set_name, buf, 'specter://' .. name)
  vim.bo[buf].bufhidden = 'wipe'
  vim.bo[buf].modifiable = false
  vim.bo[buf].filetype = filetype or ''
  vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = buf, nowait = true })
end

---@param text string
---@return string[]
local function lines_of(text)
  return vim.split(text, '\r?\n')
end

local function count(stats, name)
  return stats[name] or 0
end

---@param stats table the answer to specter/stats
---@return string[]
local function report(stats)
  local status = client.status
  local running = assert(client.get())
  local lines = {
    ('Specter %s: %s%s'):format(
      client.info.version or '',
      status.state,
      status.message ~= '' and ', ' .. status.message or ''
    ),
    ('models       %s on %s'):format(status.pair or '?', status.device or '?'),
    ('speed        %.0f tokens/s, %.0f %% of the drafted tokens accepted'):format(
      status.tokensPerSecond or 0,
      100 * (status.acceptance or 0)
    ),
    ('requests     %d: %d with a suggestion, %d cancelled, %d superseded'):format(
      count(stats, 'requests'),
      count(stats, 'completions'),
      count(stats, 'cancelled'),
      count(stats, 'superseded')
    ),
    ('suggestions  %d shown, %d accepted, %d in part, %d dismissed'):format(
      count(stats, 'shown'),
      count(stats, 'accepted'),
      count(stats, 'partlyAccepted'),
      count(stats, 'rejected')
    ),
    ('buffers      %d'):format(vim.tbl_count(running.attached_buffers or {})),
  }
  local last = stats.last
  if type(last) == 'table' and last.ttft_ms then
    table.insert(
      lines,
      4,
      ('latest       first text after %.0f ms, all after %.0f ms'):format(last.ttft_ms, last.total_ms)
    )
  end
  return lines
end

---@param answer table the answer to specter/context
---@return string[]
local function sent(answer)
  if answer.excluded then
    return { 'This file is excluded: nothing of it is sent to the model.' }
  end
  local lines = { ('What a request at the cursor sends to the model, %d tokens:'):format(answer.tokens), '' }
  for _, snippet in ipairs(answer.snippets or {}) do
    table.insert(lines, ('--- from %s'):format(snippet.uri))
    vim.list_extend(lines, lines_of(snippet.text))
  end
  table.insert(lines, '--- the prompt')
  return vim.list_extend(lines, lines_of(answer.prompt))
end

--- Other words of the server's command line: `specter serve` gives `specter pairs`.
---@param ... string
---@return string[]
local function command_line(...)
  local line, command = {}, config.options.cmd
  for _, part in ipairs(type(command) == 'table' and command or { 'specter' }) do
    if part == 'serve' then
      break
    end
    table.insert(line, part)
  end
  return vim.list_extend(line, { ... })
end

---@param on_pairs fun(text: string)
local function list_pairs(on_pairs)
  local started = pcall(vim.system, command_line('pairs'), { text = true }, function(result)
    vim.schedule(function()
      if result.code == 0 then
        on_pairs(result.stdout)
      else
        client.notify(vim.trim(result.stderr), vim.log.levels.WARN)
      end
    end)
  end)
  if not started then
    client.notify(('`%s` cannot be run; see :checkhealth specter'):format(command_line()[1]), vim.log.levels.WARN)
  end
end

local AUTO = 'auto' -- the best pair on this machine that fits the GPU
local known_pairs ---@type string[]?

--- The names of the pairs, for completion; the command line is asked until it has answered.
---@return string[]
local function pair_names()
  if known_pairs then
    return known_pairs
  end
  local started, process = pcall(vim.system, command_line('pairs', '--json'), { text = true })
  local result = started and process:wait(5000)
  local read, answer = pcall(vim.json.decode, result and result.stdout or '')
  if not read or not answer.pairs then
    return { AUTO }
  end
  known_pairs = { AUTO }
  for _, pair in ipairs(answer.pairs) do
    table.insert(known_pairs, pair.name)
  end
  return known_pairs
end

---@param buffer boolean only the current one
---@param on boolean
local function switch(buffer, on)
  if buffer then
    vim.b.specter_enabled = on
  else
    client.set('enabled', on)
  end
  if on then
    client.attach_all()
  end
  request.refresh()
  vim.cmd.redrawstatus({ bang = true })
end

---@type table<string, fun(argument?: string)>
local words = {
  enable = function(argument)
    switch(argument == 'buffer', true)
  end,
  disable = function(argument)
    switch(argument == 'buffer', false)
  end,
  status = function()
    client.ask('specter/stats', vim.empty_dict(), function(stats)
      show('status', report(stats))
    end)
  end,
  context = function()
    local running = client.get(api.nvim_get_current_buf())
    local filetype = vim.bo.filetype
    if not running then
      return client.notify('the server does not know this buffer', vim.log.levels.WARN)
    end
    client.ask('specter/context', vim.lsp.util.make_position_params(0, running.offset_encoding), function(answer)
      show('context', sent(answer), filetype)
    end)
  end,
  log = function()
    local path = vim.lsp.log and vim.lsp.log.get_filename and vim.lsp.log.get_filename() or vim.lsp.get_log_path()
    vim.cmd.split({ vim.fn.fnameescape(path), mods = { keepalt = true } })
    vim.bo.readonly, vim.bo.modifiable, vim.bo.bufhidden = true, false, 'wipe'
    vim.cmd.normal({ 'G', bang = true })
  end,
  restart = client.restart,
  pair = function(argument)
    if argument then
      client.set('pair', argument)
    else
      list_pairs(function(text)
        show('pairs', lines_of(vim.trim(text)))
      end)
    end
  end,
}

local function complete(lead, line)
  local given = vim.split(line, '%s+')
  local offered = {}
  if #given <= 2 then
    offered = vim.tbl_keys(words)
  elseif #given == 3 and (given[2] == 'enable' or given[2] == 'disable') then
    offered = { 'buffer' }
  elseif #given == 3 and given[2] == 'pair' then
    offered = pair_names()
  end
  offered = vim.deepcopy(offered)
  table.sort(offered)
  return vim.tbl_filter(function(word)
    return vim.startswith(word, lead)
  end, offered)
end

function M.create()
  api.nvim_create_user_command('Specter', function(given)
    local word = given.fargs[1] or 'status'
    local run = words[word]
    if run and #given.fargs <= 2 then
      run(given.fargs[2])
    else
      local known = vim.tbl_keys(words)
      table.sort(known)
      client.notify(('there is no :Specter %s; %s'):format(given.args, table.concat(known, ', ')), vim.log.levels.ERROR)
    end
  end, { nargs = '*', complete = complete, desc = 'Specter: status, enable, disable, context, log, pair, restart' })
end

return M
