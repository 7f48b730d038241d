--- Draws text that is not there yet. Knows one extmark, and no server.
local M = {}

local api = vim.api
local namespace = api.nvim_create_namespace('specter')
local shown_in ---@type integer? the buffer that has the mark
local window ---@type integer? that shows it

local MARK = 1
local modern = vim.fn.has('nvim-0.11') == 1

--- `text` as cells: tabs up to their stops, other control characters as `:list` would show them.
---@param text string
---@param column integer the screen column where it begins
---@return string
local function cells(text, column)
  local parts, width = {}, column
  for piece, control in text:gmatch('([^%c]*)(%c?)') do
    width = width + vim.fn.strdisplaywidth(piece, width)
    local drawn = control == '\t' and (' '):rep(vim.fn.strdisplaywidth('\t', width)) or vim.fn.strtrans(control)
    width = width + #drawn
    table.insert(parts, piece .. drawn)
  end
  return table.concat(parts)
end

--- Only the window with the cursor shows it. Neovim's functions for that may change, and are not worth an error.
---@param win integer
local function only_in(win)
  if modern then
    pcall(api.nvim__ns_set, namespace, { wins = { win } })
  elseif window ~= win then
    pcall(api.nvim__win_del_ns, window, namespace)
    pcall(api.nvim__win_add_ns, win, namespace)
  end
  window = win
end

---@class specter.Drawing
---@field buf integer
---@field win integer
---@field row integer from 0
---@field col integer byte column, of the cursor
---@field text string what would be inserted
---@field covered integer bytes after the cursor that would be replaced
---@field hint? string such as "2/3"

--- What stands right of the cursor moves behind a suggestion of one line; with more lines it belongs after the last,
--- so it is covered here and drawn there.
---@param drawing specter.Drawing
function M.show(drawing)
  local line = api.nvim_buf_get_lines(drawing.buf, drawing.row, drawing.row + 1, false)[1]
  local column = vim.fn.strdisplaywidth(line:sub(1, drawing.col))
  local old, kept = line:sub(drawing.col + 1), line:sub(drawing.col + drawing.covered + 1)
  local lines = vim.split(drawing.text, '\n', { plain = true })
  local rows = {} ---@type [string, string][][]
  for number, text in ipairs(lines) do
    rows[number] = { { cells(text, number == 1 and column or 0), 'SpecterGhost' } }
  end
  local inline = kept == old and (#lines == 1 or kept == '')
  if not inline then
    local drawn = vim.fn.strdisplaywidth(rows[#rows][1][1]) + (#lines == 1 and column or 0)
    table.insert(rows[#rows], { cells(kept, drawn) })
    local width = 0
    for _, chunk in ipairs(rows[1]) do
      width = width + vim.fn.strdisplaywidth(chunk[1])
    end
    table.insert(rows[1], { (' '):rep(vim.fn.strdisplaywidth(old, column) - width) })
  end
  if drawing.hint then
    table.insert(rows[#rows], { ' ' .. drawing.hint, 'SpecterHint' })
  end

  if shown_in and shown_in ~= drawing.buf then
    M.hide()
  end
  only_in(drawing.win)
  api.nvim_buf_set_extmark(drawing.buf, namespace, drawing.row, drawing.col, {
    id = MARK,
    virt_text = rows[1],
    virt_text_pos = inline and 'inline' or 'overlay',
    virt_lines = #rows > 1 and vim.list_slice(rows, 2) or nil,
    virt_lines_overflow = modern and 'scroll' or nil,
    scoped = not modern or nil,
    hl_mode = 'combine',
    undo_restore = false,
  })
  shown_in = drawing.buf
end

function M.hide()
  if shown_in and api.nvim_buf_is_valid(shown_in) then
    api.nvim_buf_del_extmark(shown_in, namespace, MARK)
  end
  shown_in = nil
end

function M.highlights()
  api.nvim_set_hl(0, 'SpecterGhost', { default = true, link = 'Comment' })
  api.nvim_set_hl(0, 'SpecterHint', { default = true, link = 'NonText' })
end

return M
