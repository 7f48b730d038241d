--- The one language server: how it is started, what it says of itself, and how it is asked. All buffers share it.
local config = require('specter.config')

local M = {}

local api = vim.api
local modern = vim.fn.has('nvim-0.11') == 1
local NAME = 'specter'
local OLDEST_SERVER = '0.1.0'
local SHUTDOWN_MS = 500
local STREAM = 'specter/items/'

---@class specter.Status
---@field state 'off'|'loading'|'ready'|'busy'|'error'
---@field message string
---@field pair? string
---@field device? string
---@field tokensPerSecond? number
---@field acceptance? number of the drafted tokens, 0 to 1

---@type specter.Status
M.status = { state = 'off', message = '' }
M.info = {} ---@type {name?: string, version?: string} of the server
M.on_status = function() end ---@type fun(before: specter.Status)

local broken = false -- the server could not be had; only `:Specter restart` tries again
local expected_exit = false
local restarting = false
local complained = {} ---@type table<any, true>
local languages = {} ---@type table<integer, string> as the server knows the buffers
local nameless ---@type integer? the one buffer without a name that the server knows, see `renamed`
local requests = 0
local stream ---@type {token: string, sequence: integer, receive: fun(items: lsp.InlineCompletionItem[])}?

---@param client vim.lsp.Client
---@param method string of the client
local function call(client, method, ...)
  if modern then
    return client[method](client, ...)
  end
  return client[method](...)
end

---@param message string
---@param level? integer
function M.notify(message, level)
  vim.notify('Specter: ' .. message, level or vim.log.levels.INFO)
end

---@param key any said once for each key
---@param message string
---@param level? integer
local function notify_once(key, message, level)
  if not complained[key] then
    complained[key] = true
    M.notify(message, level or vim.log.levels.WARN)
  end
end

---@param status specter.Status
local function become(status)
  local before = M.status
  M.status = status
  M.on_status(before)
end

---@param message string
local function fail(message)
  broken = true
  become({ state = 'error', message = message })
  M.notify(message, vim.log.levels.ERROR)
end

---@return vim.lsp.Client?
local function any()
  return (vim.lsp.get_clients({ name = NAME, _uninitialized = true }))[1]
end

--- The running server that has introduced itself; with `buf`, only if it knows that buffer.
---@param buf? integer
---@return vim.lsp.Client?
function M.get(buf)
  local client = vim.lsp.get_clients({ name = NAME, bufnr = buf })[1]
  return client and not call(client, 'is_stopped') and client or nil
end

-- --- the server's configuration ----------------------------------------------------------------------------------

--- Neovim gives all buffers without a name one uri. The server gets one that is the buffer's own, of the scheme that
--- is usual for them; so it may know only one of these at a time.
---@param send function of the connection
---@return function
local function renamed(send)
  return function(method, params, ...)
    local document = type(params) == 'table' and params.textDocument
    if document and document.uri == vim.uri_from_fname('') then
      if not nameless then
        return true -- it has got a name
      end
      local copy = vim.tbl_extend('force', document, { uri = M.untitled(nameless) })
      params = vim.tbl_extend('force', params, { textDocument = copy })
    end
    return send(method, params, ...)
  end
end

---@param buf integer
---@return string
function M.untitled(buf)
  return ('untitled:Untitled-%d'):format(buf)
end

---@param dispatchers vim.lsp.rpc.Dispatchers
---@return vim.lsp.rpc.PublicClient
local function spawn(dispatchers)
  local on_exit = dispatchers.on_exit
  dispatchers.on_exit = function(code, signal)
    vim.schedule(function()
      M._exited(code, signal)
    end)
    on_exit(0, 0) -- Neovim's own message about a code comes on top of ours
  end
  local command = config.options.cmd
  if type(command) == 'table' and vim.fn.executable(command[1]) == 0 then
    fail(
      ("no command `%s`. `pipx install .` in a clone of Specter brings it, setup's `cmd` says where it is"):format(
        command[1]
      )
    )
    error('not executable', 0)
  end
  local started, rpc = pcall(function()
    if type(command) == 'function' then
      return command(dispatchers)
    end
    return vim.lsp.rpc.start(command, dispatchers)
  end)
  if not started or not rpc then
    fail(('%s cannot be run; see :checkhealth specter'):format(config.server()))
    error(rpc or 'not started', 0)
  end
  return vim.tbl_extend('force', rpc, { request = renamed(rpc.request), notify = renamed(rpc.notify) })
end

local handlers = {
  ['$/progress'] = function(err, params, ctx, conf)
    local token = params and params.token
    if type(token) ~= 'string' or token:sub(1, #STREAM) ~= STREAM then
      return vim.lsp.handlers['$/progress'](err, params, ctx, conf)
    end
    local value = params.value
    if stream and stream.token == token and value.sequence > stream.sequence then
      stream.sequence = value.sequence
      stream.receive(value.items)
    end
  end,
  ['specter/status'] = function(_, status)
    if status.state == 'error' then
      notify_once(status.message, status.message, vim.log.levels.ERROR)
    end
    become(status)
  end,
  ['window/showMessage'] = function(_, params)
    local levels = { vim.log.levels.ERROR, vim.log.levels.WARN }
    M.notify(params.message, levels[params.type])
    return vim.NIL
  end,
}

--- Whether this is a Specter that we can work with.
---@param client vim.lsp.Client
---@param result lsp.InitializeResult
local function introduced(client, result)
  local info = result.serverInfo or {}
  M.info = info
  local version = vim.version.parse(info.version or '')
  local problem
  if info.name ~= NAME or not result.capabilities.inlineCompletionProvider then
    problem = ('%s is no Specter server'):format(config.server())
  elseif not version or vim.version.lt(version, OLDEST_SERVER) then
    problem = ('server version %s is too old, %s is needed; run `pipx install --force .` in a newer clone of Specter'):format(
      info.version or 'unknown',
      OLDEST_SERVER
    )
  end
  if problem then
    expected_exit = true
    fail(problem)
    vim.schedule(function()
      call(client, 'stop', true)
    end)
  end
end

--- One server for all projects: it holds the models.
---@param client vim.lsp.Client
local function reuse(client, wanted)
  return client.name == wanted.name and not call(client, 'is_stopped')
end

---@return table
local function settings()
  local given = config.options.settings
  return { specter = next(given) and given or vim.empty_dict() }
end

---@return vim.lsp.ClientConfig
function M.config()
  return {
    name = NAME,
    cmd = spawn,
    settings = settings(),
    handlers = handlers,
    on_init = introduced,
    reuse_client = reuse,
    exit_timeout = SHUTDOWN_MS,
    flags = { exit_timeout = SHUTDOWN_MS },
    root_markers = { '.git' },
  }
end

-- --- life --------------------------------------------------------------------------------------------------------

--- Whether a buffer is a text that someone writes. One without a name is, once someone does.
---@param buf integer
---@return boolean
local function is_text(buf)
  if not api.nvim_buf_is_loaded(buf) or vim.bo[buf].buftype ~= '' then
    return false
  end
  local name = api.nvim_buf_get_name(buf)
  if name == '' then
    local inserting = api.nvim_get_mode().mode:sub(1, 1) == 'i' and buf == api.nvim_get_current_buf()
    return vim.bo[buf].buflisted and (inserting or buf == nameless)
  end
  return not name:match('^%a[%w+.-]+://')
end

--- The nameless buffer that the server knows is no longer the one, or has a name now.
---@param client vim.lsp.Client
local function forget_nameless(client)
  if not nameless then
    return
  end
  local buf, uri = nameless, M.untitled(nameless)
  local there = api.nvim_buf_is_valid(buf)
  if there and vim.lsp.buf_is_attached(buf, client.id) then
    vim.lsp.buf_detach_client(buf, client.id)
  end
  nameless = nil
  if there and api.nvim_buf_get_name(buf) ~= '' then -- else Neovim has said it
    call(client, 'notify', 'textDocument/didClose', { textDocument = { uri = uri } })
  end
end

---@param buf integer
---@return boolean
local function too_large(buf)
  local size = api.nvim_buf_get_offset(buf, api.nvim_buf_line_count(buf))
  if size <= config.options.max_file_size then
    return false
  end
  local text = 'this file has %.1f MB, more than max_file_size (%.1f MB); no suggestions in it'
  notify_once(buf, text:format(size / 1e6, config.options.max_file_size / 1e6))
  return true
end

--- The server's folders grow with the projects that are visited.
---@param client vim.lsp.Client
---@param root? string
local function know_folder(client, root)
  if not root or not client.initialized then
    return
  end
  local folder = { uri = vim.uri_from_fname(root), name = root }
  for _, known in ipairs(client.workspace_folders or {}) do
    if known.uri == folder.uri then
      return
    end
  end
  client.workspace_folders = vim.list_extend(client.workspace_folders or {}, { folder })
  call(client, 'notify', 'workspace/didChangeWorkspaceFolders', { event = { added = { folder }, removed = {} } })
end

---@param id integer
local function watch_start(id)
  vim.defer_fn(function()
    local client = vim.lsp.get_client_by_id(id)
    if client and not client.initialized and not broken then
      expected_exit = true
      fail(('%s does not answer; see :Specter log'):format(config.server()))
      call(client, 'stop', true)
    end
  end, config.options.start_timeout_ms)
end

--- Make a buffer known to the server, which is started if need be.
---@param buf integer
function M.attach(buf)
  if broken or restarting or not is_text(buf) or too_large(buf) then
    return
  end
  local client = any()
  local has_name = api.nvim_buf_get_name(buf) ~= ''
  if client and has_name == (buf == nameless) then
    forget_nameless(client)
  end
  if not client and config.options.settings.enabled == false then
    return
  elseif client and vim.lsp.buf_is_attached(buf, client.id) then
    if languages[buf] == vim.bo[buf].filetype then
      return
    end
    vim.lsp.buf_detach_client(buf, client.id) -- the only way to tell another language
  end
  languages[buf] = vim.bo[buf].filetype
  local root = vim.fs.root(buf, { '.git' })
  local wanted = M.config()
  wanted.root_dir = root
  if not client then
    expected_exit = false
    become({ state = 'loading', message = 'starting' })
  end
  nameless = not has_name and buf or nameless
  local id = vim.lsp.start(wanted, { bufnr = buf, reuse_client = reuse, silent = true })
  if id and not client then
    watch_start(id)
  elseif client then
    know_folder(client, root)
  end
end

function M.attach_all()
  for _, buf in ipairs(api.nvim_list_bufs()) do
    M.attach(buf)
  end
end

--- The server's process has ended.
---@param code integer
---@param signal integer
function M._exited(code, signal)
  stream, nameless = nil, nil
  if restarting then
    restarting = false
    vim.schedule(function()
      vim.schedule(M.attach_all) -- once Neovim has forgotten the old client, see Client:_on_exit
    end)
  elseif not expected_exit and not broken and vim.v.exiting == vim.NIL then
    local cause = signal ~= 0 and ('signal ' .. signal) or ('exit code ' .. code)
    fail(('the server has ended (%s); see :Specter log, then :Specter restart'):format(cause))
  end
end

function M.restart()
  broken, complained = false, {}
  local client = any()
  if client then
    restarting = true
    call(client, 'stop', true)
  else
    restarting = false
    M.attach_all()
  end
end

--- Change a setting for this session and tell the server.
---@param key string
---@param value any
function M.set(key, value)
  config.options.settings[key] = value
  local client = M.get()
  if client then
    client.settings = settings()
    call(client, 'notify', 'workspace/didChangeConfiguration', { settings = client.settings })
  end
end

-- --- questions ---------------------------------------------------------------------------------------------------

--- Ask for the text at the cursor of the current window. `on_items` gets what there is, each time in place of what it
--- got before, and `true` with the last.
---@param buf integer
---@param context lsp.InlineCompletionContext
---@param on_items fun(items: lsp.InlineCompletionItem[], last: boolean)
---@return fun() cancel
function M.complete(buf, context, on_items)
  local client = assert(M.get(buf))
  requests = requests + 1
  local token = STREAM .. requests
  stream = {
    token = token,
    sequence = 0,
    receive = function(items)
      on_items(items, false)
    end,
  }
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = context
  params.partialResultToken = token
  local function answer(_, result)
    if stream and stream.token == token then
      stream = nil
    end
    on_items(result and (result.items or result) or {}, true)
  end
  local sent, id = call(client, 'request', 'textDocument/inlineCompletion', params, answer, buf)
  return function()
    if stream and stream.token == token then
      stream = nil
    end
    if sent then
      call(client, 'cancel_request', id)
    end
  end
end

--- Tell the server what became of a suggestion.
---@param method string
---@param params table
function M.tell(method, params)
  local client = M.get()
  if client then
    call(client, 'notify', method, params)
  end
end

---@param method string
---@param params table
---@param on_result fun(result: any)
function M.ask(method, params, on_result)
  local client = M.get()
  if not client then
    return M.notify(M.status.message ~= '' and M.status.message or 'the server does not run', vim.log.levels.WARN)
  end
  call(client, 'request', method, params, function(err, result)
    if err then
      M.notify(err.message, vim.log.levels.WARN)
    else
      on_result(result)
    end
  end, 0)
end

---@param command lsp.Command
function M.execute(command)
  local client = M.get()
  if client then
    local params = { command = command.command, arguments = command.arguments }
    call(client, 'request', 'workspace/executeCommand', params, function() end, 0)
  end
end

return M
