--- Columns: the server counts in the encoding it agreed on with Neovim, Neovim in bytes.
local M = {}

local modern = vim.fn.has('nvim-0.11') == 1

--- The byte column of a position; beyond the end it is the end.
---@param line string
---@param character integer
---@param encoding string 'utf-8', 'utf-16' or 'utf-32'
---@return integer
function M.byte(line, character, encoding)
  if encoding == 'utf-8' then
    return math.min(character, #line)
  end
  if modern then
    return vim.str_byteindex(line, encoding, character, false)
  end
  local utf32, utf16 = vim.str_utfindex(line)
  local length = encoding == 'utf-16' and utf16 or utf32
  return vim.str_byteindex(line, math.min(character, length), encoding == 'utf-16')
end

---@param text string
---@param encoding string
---@return integer length in the units of that encoding
function M.length(text, encoding)
  if encoding == 'utf-8' then
    return #text
  elseif modern then
    return vim.str_utfindex(text, encoding)
  end
  local utf32, utf16 = vim.str_utfindex(text)
  return encoding == 'utf-16' and utf16 or utf32
end

return M
