--- A server inside the Neovim under test that says what a test makes it say. Only what the wire carries passes.
local M = {
  log = {}, ---@type {method: string, params: any}[] all that came, in order
  open = {}, ---@type table<integer, {params: any, answer: fun(err: any, result: any)}>
  cancelled = {}, ---@type integer[]
  latest = 0, ---@type integer the id of the latest inline completion
  info = { name = 'specter', version = '0.1.0' },
  encoding = 'utf-8',
  answers = {}, ---@type table<string, any>
  automatic = nil, ---@type (fun(params: any): any[])? answers each inline completion at once
}

local ids, suggestions = 0, 0
local dispatch ---@type vim.lsp.rpc.Dispatchers

--- An item as the server sends it, at the position of the request unless told otherwise.
function M.item(text, params, first, last)
  suggestions = suggestions + 1
  local place = params.position
  return {
    insertText = text,
    range = {
      start = { line = place.line, character = first or place.character },
      ['end'] = { line = place.line, character = last or place.character },
    },
    command = { title = '', command = 'specter.accepted', arguments = { 'id' .. suggestions } },
  }
end

--- Answer the latest inline completion with these texts.
function M.answer(...)
  local request = M.open[M.latest]
  M.open[M.latest] = nil
  local items = {}
  for _, text in ipairs({ ... }) do
    table.insert(items, type(text) == 'table' and text or M.item(text, request.params))
  end
  request.answer(nil, { items = items })
end

--- Stream what the latest inline completion has come to.
function M.grow(text, sequence)
  local params = M.open[M.latest].params
  M.streamed = M.streamed or {}
  local item = M.streamed[M.latest] or M.item(text, params)
  M.streamed[M.latest] = item
  item.insertText = text
  local value = { items = { vim.deepcopy(item) }, sequence = sequence }
  dispatch.notification('$/progress', { token = params.partialResultToken, value = value })
end

function M.say(method, params)
  dispatch.notification(method, params)
end

function M.count(method)
  local count = 0
  for _, message in ipairs(M.log) do
    count = count + (message.method == method and 1 or 0)
  end
  return count
end

function M.last(method)
  for index = #M.log, 1, -1 do
    if M.log[index].method == method then
      return M.log[index].params
    end
  end
end

local function initialize_result()
  return {
    capabilities = {
      positionEncoding = M.encoding,
      textDocumentSync = { openClose = true, change = 2 },
      inlineCompletionProvider = vim.empty_dict(),
      executeCommandProvider = { commands = { 'specter.accepted', 'specter.rejected', 'specter.restartEngine' } },
    },
    serverInfo = M.info,
  }
end

local function request(method, params, callback, notify_reply)
  ids = ids + 1
  local id = ids
  table.insert(M.log, { method = method, params = vim.deepcopy(params or {}) })
  local function answer(err, result)
    vim.schedule(function()
      callback(err, result)
      if notify_reply then
        notify_reply(id)
      end
    end)
  end
  if method == 'initialize' then
    if not M.silent then
      answer(nil, initialize_result())
    end
  elseif method == 'textDocument/inlineCompletion' then
    M.open[id] = { params = params, answer = answer }
    M.latest = id
    if M.automatic then
      M.answer(unpack(M.automatic(params)))
    end
  else
    answer(nil, M.answers[method] or vim.NIL)
  end
  return true, id
end

local function notify(method, params)
  table.insert(M.log, { method = method, params = vim.deepcopy(params or {}) })
  if method == '$/cancelRequest' then
    table.insert(M.cancelled, params.id)
    M.open[params.id] = nil -- the reply, -32800, ends inside Neovim
  elseif method == 'exit' then
    M.exit(0)
  end
  return true
end

function M.exit(code)
  M.closed = true
  dispatch.on_exit(code, 0)
end

--- Be the server that the plugin starts, and set the plugin up.
function M.install(options)
  vim.lsp.rpc.start = function(_, dispatchers)
    M.closed = false
    dispatch = dispatchers
    return {
      request = request,
      notify = notify,
      is_closing = function()
        return M.closed
      end,
      terminate = function()
        M.exit(0)
      end,
    }
  end
  options = vim.tbl_extend('keep', options or {}, { cmd = { vim.v.progpath } })
  require('specter').setup(options)
end

return M
