--- What an accepting key takes of a suggestion, and how that gets into the buffer.
local M = {}

local api = vim.api

---@alias specter.Part 'all'|'word'|'line'

--- Blanks and then the characters of one class: a word, punctuation, or one script of those written without blanks.
---@param text string
---@return string
local function first_word(text)
  local taken, class = 0, nil ---@type integer, integer?
  for _, character in ipairs(vim.fn.split(text, '\\zs')) do
    local current = character:match('^%s') and 0 or vim.fn.charclass(character)
    if class and current ~= class then
      break
    end
    class = current ~= 0 and current or class
    taken = taken + #character
  end
  return text:sub(1, taken)
end

--- The front of `text` that is accepted with one key.
---@param text string
---@param part specter.Part
---@return string
function M.chunk(text, part)
  if part == 'word' then
    return first_word(text)
  elseif part == 'line' then
    return text:match('^\n?[^\n]*')
  end
  return text
end

--- Insert `chunk` at the cursor as a paste: one undo step if the caller sets the breaks, and `.` repeats it.
---@param chunk string
---@param covered integer bytes after the cursor that it replaces
function M.insert(chunk, covered)
  if covered > 0 then
    local place = api.nvim_win_get_cursor(0)
    api.nvim_buf_set_text(0, place[1] - 1, place[2], place[1] - 1, place[2] + covered, {})
  end
  api.nvim_paste(chunk, false, -1)
  if vim.fn.foldclosed('.') ~= -1 then
    vim.cmd.normal({ 'zv', bang = true })
  end
end

return M
