--- The suggestion at the cursor: when to ask for one, whether it still holds, what of it is left.
---
--- There is one cursor, so there is one suggestion. It is text at a place; it holds as long as the document before that
--- place and behind the cursor is what it was, and what was written in between is how the text begins.
local client = require('specter.client')
local ghost = require('specter.ghost')
local menu = require('specter.menu')
local position = require('specter.position')

local M = {}

local api = vim.api
local INVOKED, AUTOMATIC = 1, 2

---@class specter.Item
---@field text string lines end in "\n"
---@field start integer byte column where it begins
---@field covered integer bytes after the cursor that it replaces
---@field source lsp.InlineCompletionItem
---@field before? string what of the source was written before `start`

---@class specter.Suggestion
---@field buf integer
---@field row integer from 0
---@field col integer byte column, of the cursor when it was asked for
---@field head string that line, up to the cursor
---@field tail string and behind it
---@field selected? string the menu's item it goes on from
---@field items specter.Item[]
---@field index integer
---@field cancel? fun() while the server works on it
---@field all? true the server was asked for everything it has
---@field told table<string, true> which items the server knows to be on screen

local live ---@type specter.Suggestion?
local dismissed ---@type string? where the user wants to see nothing

---@return integer row, integer col
local function cursor()
  local place = api.nvim_win_get_cursor(0)
  return place[1] - 1, place[2]
end

local function here()
  local row, col = cursor()
  return ('%d:%d:%d:%d'):format(api.nvim_get_current_buf(), api.nvim_buf_get_changedtick(0), row, col)
end

--- Whether the cursor stands where text could be suggested.
---@return boolean
local function allowed()
  local buf = api.nvim_get_current_buf()
  return api.nvim_get_mode().mode:sub(1, 1) == 'i'
    and vim.bo[buf].modifiable
    and not vim.bo[buf].readonly
    and not vim.o.paste
    and vim.b[buf].specter_enabled ~= false
    and require('specter.config').options.settings.enabled ~= false
    and vim.fn.reg_executing() == ''
    and vim.fn.getcurpos()[4] == 0 -- 'virtualedit': not on a place that the document does not have
    and vim.fn.foldclosed('.') == -1
    and client.get(buf) ~= nil
end

---@param suggestion specter.Suggestion
---@param source lsp.InlineCompletionItem
---@return specter.Item?
local function read(suggestion, source)
  local text = source.insertText
  local line = suggestion.head .. suggestion.tail
  local start, stop = suggestion.col, suggestion.col
  if source.range then
    local first, last = source.range.start, source.range['end']
    if first.line ~= suggestion.row or last.line ~= suggestion.row then
      return nil
    end
    local encoding = assert(client.get()).offset_encoding
    start, stop = position.byte(line, first.character, encoding), position.byte(line, last.character, encoding)
  end
  if type(text) ~= 'string' or text == '' or start > suggestion.col or stop < suggestion.col then
    return nil
  end
  return { text = text:gsub('\r\n?', '\n'), start = start, covered = stop - suggestion.col, source = source }
end

---@param suggestion specter.Suggestion
---@param sources lsp.InlineCompletionItem[]
---@return specter.Item[]
local function read_all(suggestion, sources)
  local items = {}
  for _, source in ipairs(sources) do
    table.insert(items, read(suggestion, source))
  end
  return items
end

--- What of an item is still to be written, and how much is; nil if it does not fit the document any more.
---@param suggestion specter.Suggestion
---@param item specter.Item
---@return string? rest, integer? written bytes
local function remaining(suggestion, item)
  local row, col = cursor()
  if row < suggestion.row or (row == suggestion.row and col < item.start) then
    return nil
  end
  local lines = api.nvim_buf_get_lines(suggestion.buf, suggestion.row, row + 1, false)
  local last = lines[#lines] or ''
  if last:sub(col + 1) ~= suggestion.tail or lines[1]:sub(1, item.start) ~= suggestion.head:sub(1, item.start) then
    return nil
  end
  lines[#lines] = last:sub(1, col)
  lines[1] = lines[1]:sub(item.start + 1)
  local written = table.concat(lines, '\n')
  if item.text:sub(1, #written) ~= written then
    return nil
  end
  return item.text:sub(#written + 1), #written
end

--- Whether a suggestion has, or may yet get, something to say at the cursor.
---@param suggestion specter.Suggestion
---@return boolean
local function holds(suggestion)
  if suggestion.buf ~= api.nvim_get_current_buf() then
    return false
  end
  local focused = menu.selected()
  if focused == false or suggestion.selected ~= (focused and focused.text or nil) then
    return false
  end
  local row, col = cursor()
  local unmoved = row == suggestion.row
    and col == suggestion.col
    and api.nvim_get_current_line() == suggestion.head .. suggestion.tail
  local item = suggestion.items[suggestion.index]
  if not item then
    return unmoved
  end
  local rest = remaining(suggestion, item)
  return rest ~= nil and (rest ~= '' or suggestion.cancel ~= nil or unmoved)
end

--- What is on screen: the suggestion, its item, what of it is left and how much is written.
---@return specter.Suggestion?, specter.Item?, string?, integer?
local function visible()
  if not live or not allowed() or not holds(live) then
    return nil
  end
  local item = live.items[live.index]
  local rest, written
  if item then
    rest, written = remaining(live, item)
  end
  if not rest or rest == '' then
    return nil
  end
  return live, item, rest, written
end

local function draw()
  local suggestion, item, rest = visible()
  if not suggestion or not item or not rest then
    return ghost.hide()
  end
  local row, col = cursor()
  ghost.show({
    buf = suggestion.buf,
    win = api.nvim_get_current_win(),
    row = row,
    col = col,
    text = rest,
    covered = item.covered,
    hint = #suggestion.items > 1 and ('%d/%d'):format(suggestion.index, #suggestion.items) or nil,
  })
  local id = vim.tbl_get(item.source, 'command', 'arguments', 1) or item.text
  if not suggestion.told[id] then
    suggestion.told[id] = true
    client.tell('textDocument/didShowCompletion', { item = item.source })
  end
end

--- No suggestion; what the server still works on is cancelled.
function M.clear()
  if live and live.cancel then
    live.cancel()
  end
  live = nil
  ghost.hide()
end

---@param kind integer
---@return lsp.InlineCompletionContext?, string? selected
local function context(kind)
  local focused = menu.selected()
  if focused == nil then
    return { triggerKind = kind }
  elseif focused == false then
    return nil
  end
  local encoding = assert(client.get()).offset_encoding
  local place = vim.lsp.util.make_position_params(0, encoding).position
  local typed = position.length(focused.text:sub(1, focused.typed), encoding)
  local start = { line = place.line, character = place.character - typed }
  return {
    triggerKind = kind,
    selectedCompletionInfo = { range = { start = start, ['end'] = place }, text = focused.text },
  },
    focused.text
end

---@param kind integer
local function ask(kind)
  local asked, selected = context(kind)
  if not asked then
    return
  end
  local row, col = cursor()
  local line = api.nvim_get_current_line()
  ---@type specter.Suggestion
  local suggestion = {
    buf = api.nvim_get_current_buf(),
    row = row,
    col = col,
    head = line:sub(1, col),
    tail = line:sub(col + 1),
    selected = selected,
    items = {},
    index = 1,
    all = kind == INVOKED or nil,
    told = {},
  }
  live = suggestion
  suggestion.cancel = client.complete(suggestion.buf, asked, function(sources, last)
    if live ~= suggestion then
      return
    end
    suggestion.items = read_all(suggestion, sources)
    if last then
      suggestion.cancel = nil
    end
    if holds(suggestion) then
      draw()
    else
      M.refresh()
    end
  end)
end

--- The cursor or the text may have changed.
function M.refresh()
  if not allowed() then
    return M.clear()
  end
  if live and holds(live) then
    return draw()
  end
  M.clear()
  if dismissed ~= here() then
    dismissed = nil
    ask(AUTOMATIC)
  end
end

--- The suggestion as if it had been asked for where the cursor is now.
---@param suggestion specter.Suggestion
local function move_here(suggestion)
  local row, col = cursor()
  if row == suggestion.row and col == suggestion.col then
    return
  end
  for index, item in ipairs(suggestion.items) do
    local rest, written = remaining(suggestion, item)
    suggestion.items[index] = {
      text = assert(rest), -- there is one item, and it is on screen
      start = col,
      covered = item.covered,
      source = item.source,
      before = (item.before or '') .. item.text:sub(1, written),
    }
  end
  local line = api.nvim_get_current_line()
  suggestion.row, suggestion.col = row, col
  suggestion.head, suggestion.tail = line:sub(1, col), line:sub(col + 1)
end

--- Everything the server has for the place of a suggestion, behind what is known already.
---@param suggestion specter.Suggestion
---@param step integer
local function ask_all(suggestion, step)
  suggestion.all = true
  move_here(suggestion)
  local asked = context(INVOKED)
  local place = here()
  if not asked then
    return
  end
  suggestion.cancel = client.complete(suggestion.buf, asked, function(sources, last)
    if live ~= suggestion or not last then
      return
    end
    suggestion.cancel = nil
    if place ~= here() then
      return
    end
    local known = {}
    for _, item in ipairs(suggestion.items) do
      known[item.text] = true
    end
    for _, item in ipairs(read_all(suggestion, sources)) do
      if not known[item.text] then
        table.insert(suggestion.items, item)
      end
    end
    suggestion.index = (suggestion.index - 1 + step) % #suggestion.items + 1
    draw()
  end)
end

--- Ask at the cursor even if nothing was to be shown there. What is shown stays, and the server's others come.
function M.trigger()
  if not allowed() then
    return
  end
  dismissed = nil
  local suggestion = visible()
  if not suggestion then
    M.clear()
    ask(INVOKED)
  elseif not suggestion.all and not suggestion.cancel then
    ask_all(suggestion, 0)
  end
end

--- The next suggestion (or, with -1, the previous); the first time, the server is asked what else it has.
---@param step integer
function M.cycle(step)
  local suggestion = visible()
  if not suggestion then
    return M.trigger()
  end
  if #suggestion.items == 1 and not suggestion.all then
    if not suggestion.cancel then -- it still grows otherwise
      ask_all(suggestion, step)
    end
    return
  end
  suggestion.index = (suggestion.index - 1 + step) % #suggestion.items + 1
  draw()
end

--- Hide the suggestion; none comes at this place until something is typed.
---@return boolean whether there was one
function M.dismiss()
  local suggestion, item = visible()
  if not suggestion or not item then
    return false
  end
  local id = vim.tbl_get(item.source, 'command', 'arguments', 1)
  if id then
    client.execute({ title = '', command = 'specter.rejected', arguments = { id } })
  end
  dismissed = here()
  M.clear()
  return true
end

--- The text on screen; nil if there is none.
---@return string?
function M.text()
  local _, _, rest = visible()
  return rest
end

--- `chunk`, from the front of the text on screen, is about to be inserted at the cursor. Returns how many bytes after
--- the cursor have to go for it.
---@param chunk string
---@return integer covered
function M.accepting(chunk)
  local suggestion, item, rest, written = visible()
  if not suggestion or not item or not rest or rest:sub(1, #chunk) ~= chunk then
    return 0
  end
  if chunk == rest then
    local command = item.source.command
    M.clear()
    if command then
      client.execute(command)
    end
    return item.covered
  end
  local accepted = (item.before or '') .. item.text:sub(1, written + #chunk)
  if item.source.insertText:find('\r\n', 1, true) then
    accepted = accepted:gsub('\n', '\r\n')
  end
  client.tell('textDocument/didPartiallyAcceptCompletion', {
    item = item.source,
    acceptedLength = position.length(accepted, 'utf-16'),
  })
  return 0
end

return M
