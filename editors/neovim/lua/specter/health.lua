--- `:checkhealth specter`: what is needed, and what is missing of it.
local client = require('specter.client')
local config = require('specter.config')

local M = {}

local health = vim.health

local function editor()
  health.start('Neovim')
  local version = tostring(vim.version())
  if vim.fn.has('nvim-0.10') == 1 then
    health.ok('version ' .. version)
  else
    health.error(('version %s; 0.10 or later is needed'):format(version))
  end
end

local function command()
  health.start('Server')
  if type(config.options.cmd) == 'function' then
    return health.info('`cmd` is a function: it connects to a server, or starts one')
  end
  local program = config.options.cmd[1]
  if vim.fn.executable(program) == 0 then
    return health.error(('`%s` is not there or cannot be run'):format(program), {
      'run `pipx install .` in a clone of Specter (Python 3.11 or later), or',
      "give its place: require('specter').setup{ cmd = { '/path/to/specter', 'serve' } }",
    })
  end
  health.ok(('%s is %s'):format(config.server(), vim.fn.exepath(program)))
end

local function server()
  local running = client.get()
  if not running then
    local message = client.status.message ~= '' and client.status.message or 'no file was opened since setup()'
    local report = client.status.state == 'error' and health.error or health.warn
    return report('it does not run: ' .. message, { ':Specter restart', ':Specter log' })
  end
  health.ok(
    ('it runs, version %s, with %d buffers'):format(client.info.version or '?', vim.tbl_count(running.attached_buffers))
  )
  local status = client.status
  local models = ('models: %s %s %s'):format(status.state, status.pair or '', status.message)
  if status.state == 'error' then
    health.error(models, { '`specter doctor` in a terminal says more' })
  else
    health.ok(models)
  end
end

local function keys()
  health.start('Keys')
  for name, key in pairs(config.options.keys) do
    local mapped = key and vim.fn.maparg(key, 'i', false, true)
    if not key then
      health.info(('%s: off'):format(name))
    elseif mapped.desc == require('specter.keys').DESCRIPTION then
      health.ok(('%s: %s'):format(name, key))
    elseif next(mapped) then
      health.warn(('%s: %s was mapped to something else after setup()'):format(name, key), {
        ("choose another key in setup's `keys.%s`, or let that mapping end in <Plug>(specter-…)"):format(name),
      })
    else
      health.warn(('%s: %s is not mapped; setup() was not called'):format(name, key))
    end
  end
end

function M.check()
  editor()
  command()
  server()
  keys()
end

return M
