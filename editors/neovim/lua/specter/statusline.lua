--- A few cells for 'statusline': `%{v:lua.require'specter'.statusline()}`.
local client = require('specter.client')

local M = {}

local SIGNS = { off = '○', loading = '◌', ready = '●', busy = '●', error = '✗' }

---@return string
function M.text()
  local status = client.status
  if vim.b.specter_enabled == false then
    return 'specter ' .. SIGNS.off
  end
  local text = 'specter ' .. (SIGNS[status.state] or '?')
  if status.state == 'loading' or status.state == 'error' then
    return text .. ' ' .. status.state
  end
  return text
end

return M
