--- The built-in completion menu: what of it a suggestion must go on from. nvim-cmp and blink.cmp draw their own windows
--- and write what is selected into the buffer, so they need nothing from us.
local M = {}

---@class specter.Selected
---@field text string the item, as it will stand in the buffer
---@field typed integer how many bytes of it stand before the cursor

--- The focused item; nil without one. `false` if it does not begin with what was typed (fuzzy matches), so that no
--- suggestion could go on from both.
---@return specter.Selected|false|nil
function M.selected()
  if vim.fn.pumvisible() == 0 then
    return nil
  end
  local info = vim.fn.complete_info({ 'selected', 'items' })
  local item = info.selected >= 0 and info.items[info.selected + 1]
  if not item then
    return nil
  end
  local before = vim.api.nvim_get_current_line():sub(1, vim.api.nvim_win_get_cursor(0)[2])
  for typed = math.min(#item.word, #before), 1, -1 do
    if before:sub(-typed) == item.word:sub(1, typed) then
      return { text = item.word, typed = typed }
    end
  end
  return false
end

return M
