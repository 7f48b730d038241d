--- A macro that accepted a suggestion inserts that text again, not whatever is suggested when it runs.
---
--- The register holds the keys alone, so what each press of an accepting key did is kept beside it, in order.
local M = {}

---@alias specter.Outcome string|false the text that was accepted, or false: the key did what it does without us

---@type table<string, {keys: string, outcomes: specter.Outcome[]}>
local recorded = {}
local recording = {} ---@type specter.Outcome[]
local played = 0 -- presses since the replay began

function M.began()
  recording = {}
end

--- The register has its new keys only after RecordingLeave.
---@param register string
function M.ended(register)
  local outcomes, name = recording, register:lower()
  vim.schedule(function()
    if register ~= name and recorded[name] then -- appended, as with qA
      outcomes = vim.list_extend(recorded[name].outcomes, outcomes)
    end
    recorded[name] = { keys = vim.fn.getreg(name), outcomes = outcomes }
  end)
end

---@param outcome specter.Outcome
function M.note(outcome)
  if vim.fn.reg_recording() ~= '' then
    table.insert(recording, outcome)
  end
end

--- What this press of an accepting key did when the macro was recorded; nil if no macro runs.
---@return specter.Outcome?
function M.replayed()
  local register = vim.fn.reg_executing():lower()
  if register == '' then
    return nil
  end
  local macro = recorded[register]
  if not macro or #macro.outcomes == 0 or macro.keys ~= vim.fn.getreg(register) then
    return false
  end
  if played == 0 then
    vim.api.nvim_create_autocmd('SafeState', {
      once = true,
      callback = function()
        played = 0
      end,
    })
  end
  played = played + 1
  return macro.outcomes[(played - 1) % #macro.outcomes + 1]
end

return M
